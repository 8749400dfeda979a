"""connect("auto"): rank 0 of a launch chooses a daemon, and the other ranks use the one it chose.

Rank 0 takes the first that answers of
 1. the daemon that this launch used before: after a restart of rank 0, or of all ranks;
 2. a daemon of this machine at the default addresses, if all ranks run on this machine;
 3. one that it starts: a process of its own with a store on disk, which ends 60 s after its last
    client has gone.
It publishes the choice under the launch's key. On one machine that is a file in a directory that only
this user can enter; over several machines it is a key in the TCPStore at MASTER_ADDR. The other ranks
wait for a published daemon that answers, and never choose. What a former launch has published does no
harm: if its daemon still answers, rank 0 takes it too; if not, the others wait for a new one.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import logging
import os
import re
import secrets
import select
import shutil
import socket
import subprocess
import time
from datetime import timedelta
from typing import Any, Callable, Iterator, Mapping, NamedTuple

from ._address import is_loopback
from ._private import private_directory, write_private
from ._programs import ProgramNotFound, find_program
from .errors import Error, Invalid, Status, error_of

_log = logging.getLogger("syncd")

IDLE_S = 60
"""How long a daemon that was started lives without a client."""
TIMEOUT_S = 60.0
"""How long connect("auto") takes at most, where neither the caller nor the environment says so: rank 0 may
be slower to come than the others."""
_PORT = 7117
_ANSWER_S = 2.0  # what one daemon may take to answer
_PRUNE_S = 30 * 24 * 3600.0
_SOCKET_BYTES_MAX = 107


# ---- Which launch this process belongs to --------------------------------------------------------


class Place(NamedTuple):
    """Where this process stands in its launch."""

    rank: int
    world_size: int
    launch: str
    """What all processes of the launch have in common, also after a restart."""
    several_machines: bool


# As the C library reads them; with how many of the processes run on this machine.
_STARTERS = (
    ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS", ""),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"),
)


def _number(environment: Mapping[str, str], name: str, least: int) -> int | None:
    text = environment.get(name, "")
    if not text:
        return None
    if not re.fullmatch(r"[0-9]{1,9}", text) or int(text) < least:
        raise error_of(Status.E_INVALID, f"{name}={text!r}; allowed: a whole number from {least}")
    return int(text)


def place_of(environment: Mapping[str, str]) -> Place:
    """Which rank of which launch this is. Without any variable: rank 0 of one."""
    starter = next((each for each in _STARTERS if environment.get(each[0])), _STARTERS[0])
    rank = _number(environment, starter[0], 0) or 0
    world_size = _number(environment, starter[1], 1) or rank + 1
    master = environment.get("MASTER_ADDR", "")
    port = environment.get("MASTER_PORT", "")
    named = environment.get("SYNCD_LAUNCH", "")
    run_id = environment.get("TORCHELASTIC_RUN_ID", "")
    if named:
        launch = "launch " + re.sub(r"/[0-9]+$", "", named)
    elif run_id and run_id != "none":  # what torchrun says without --rdzv-id
        launch = f"run {run_id}"
    elif starter is _STARTERS[0] and environment.get("RANK") and master and port:
        launch = f"master {master}:{port}"
    elif job := environment.get("SLURM_JOB_ID"):
        launch = f"slurm {job}.{environment.get('SLURM_STEP_ID', '')}"
    elif master and port:
        launch = f"master {master}:{port}"
    else:
        launch = "this user"
    return Place(rank, world_size, launch, _is_on_several(environment, starter, world_size))


def _is_on_several(
    environment: Mapping[str, str], starter: tuple[str, str, str], world_size: int
) -> bool:
    if world_size == 1:
        return False
    if starter[2] and (here := _number(environment, starter[2], 1)):
        return here < world_size
    if starter[0] == "SLURM_PROCID":
        nodes = _number(environment, "SLURM_STEP_NUM_NODES", 1)
        return (nodes or _number(environment, "SLURM_NNODES", 1) or 1) > 1
    master = environment.get("MASTER_ADDR", "")
    return bool(master) and not is_loopback(master)


# ---- What is published ---------------------------------------------------------------------------


class Published(NamedTuple):
    address: str
    token: str = ""
    """What the daemon asks for; empty: nothing, or what the caller's token_file says."""

    def text(self) -> str:
        return json.dumps(self._asdict())

    @classmethod
    def read(cls, text: str | bytes) -> Published | None:
        try:
            found = json.loads(text)
            return cls(str(found["address"]), str(found["token"]))
        except (ValueError, TypeError, KeyError):
            return None


def _directory() -> str:
    return os.environ.get("SYNCD_AUTO_DIR") or f"/tmp/syncd-{os.geteuid()}"


class Directory:
    """Files of this user's launches on this machine. It does not follow XDG_RUNTIME_DIR, which ends
    with a login and is not the same for all that a user starts."""

    poll_s = 0.05

    def __init__(self, launch: str) -> None:
        self.path = str(private_directory(_directory(), "SYNCD_AUTO_DIR"))
        self.name = hashlib.sha256(launch.encode()).hexdigest()[:16]
        self.socket = self.file("sock")
        if len(os.fsencode(self.socket)) > _SOCKET_BYTES_MAX:
            raise error_of(
                Status.E_INVALID,
                f"SYNCD_AUTO_DIR={self.path!r} is too long for a Unix socket in it; allowed: "
                f"{_SOCKET_BYTES_MAX - len(self.name) - 6} bytes",
            )

    def file(self, kind: str) -> str:
        return os.path.join(self.path, f"{self.name}.{kind}")

    def write(self, kind: str, text: str) -> str:
        path = self.file(kind)
        write_private(path, text)
        return path

    def read(self) -> Published | None:
        try:
            with open(self.file("daemon"), "rb") as file:
                return Published.read(file.read())
        except FileNotFoundError:
            # Systems remove old files of /tmp, but no socket that is in use.
            return Published(f"unix:{self.socket}") if os.path.exists(self.socket) else None

    def publish(self, chosen: Published) -> None:
        self.write("daemon", chosen.text())

    @contextlib.contextmanager
    def choosing(self, deadline: float) -> Iterator[None]:
        """Only one process of this launch chooses at a time."""
        with open(os.open(self.file("lock"), os.O_RDWR | os.O_CREAT, 0o600), "w") as file:
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() >= deadline:
                        raise error_of(
                            Status.E_TIMEOUT,
                            f'connect("auto"): another process holds {self.file("lock")}',
                        ) from None
                    time.sleep(Directory.poll_s)
            yield


class Running(NamedTuple):
    """A daemon that connect("auto") has started and that answers."""

    address: str
    token_file: str
    """"": it asks for none."""
    launch: str


def running() -> list[Running]:
    """This user's on this machine. Raises Error (SYNCD_E_AUTH) for a directory that others may change."""
    if not os.path.isdir(_directory()):
        return []
    found: dict[str, Running] = {}
    for config in sorted(private_directory(_directory(), "SYNCD_AUTO_DIR").glob("*.toml")):
        launch = config.read_text().partition("\n")[0].removeprefix("# ").rpartition(": ")[0]
        directory = Directory(launch)
        published = directory.read()
        if published is None or published.address in found or not _listens(published.address):
            continue
        token_file = directory.file("token") if published.token else ""
        found[published.address] = Running(published.address, token_file, launch)
    return list(found.values())


class MasterStore:
    """The TCPStore at MASTER_ADDR, which rank 0 opens where nobody has yet. init_process_group() in the
    same process uses the same one afterwards."""

    poll_s = 0.5  # one thread serves all ranks
    _kept: list[Any] = []  # a server that this process has opened ends with its last reference

    def __init__(self, place: Place, deadline: float) -> None:
        host, port = os.environ.get("MASTER_ADDR", ""), os.environ.get("MASTER_PORT", "")
        why = ""
        if not host or not port.isdigit():
            why = "MASTER_ADDR and MASTER_PORT are not set"
        try:
            from torch.distributed import TCPStore

            from .torchrun import _Stores
        except ImportError as error:
            why = why or f"torch cannot be imported ({error})"
        if why:
            raise error_of(
                Status.E_INVALID,
                f'connect("auto") over several machines takes torch\'s store at MASTER_ADDR, and {why}. '
                "Start a daemon and name it in SYNCD_ADDR",
            )
        options = _Stores()._options
        of_agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        self._key = f"syncd/auto/{place.launch}"
        for is_master in (True, False) if place.rank == 0 and not of_agent else (False,):
            try:
                self._store = TCPStore(
                    host,
                    int(port),
                    is_master=is_master,
                    timeout=timedelta(seconds=min(max(1.0, deadline - time.monotonic()), 1e6)),
                    wait_for_workers=False,
                    multi_tenant=True,
                    **options,
                )
                break
            except RuntimeError as error:  # is_master: somebody else serves this port
                if not is_master:
                    raise error_of(
                        Status.E_UNREACHABLE, f"MASTER_ADDR's store at {host}:{port}: {error}"
                    ) from None
        self._kept.append(self._store)

    def read(self) -> Published | None:
        # get() waits for a key, and torch 1.13 has no check().
        return Published.read(self._store.compare_set(self._key, "", ""))

    def publish(self, chosen: Published) -> None:
        self._store.set(self._key, chosen.text())


# ---- Daemons -------------------------------------------------------------------------------------


def _default_socket() -> str:
    if directory := os.environ.get("XDG_RUNTIME_DIR"):
        if os.geteuid() != 0:
            return f"{directory}/syncd.sock"
    if os.geteuid() == 0:
        return "/run/syncd/syncd.sock"
    return f"/tmp/syncd-{os.geteuid()}/syncd.sock"


def _accepts(family: socket.AddressFamily, address: Any) -> bool:
    with socket.socket(family) as probe:
        probe.settimeout(_ANSWER_S)
        try:
            probe.connect(address)
        except OSError:
            return False
    return True


def _listens(address: str) -> bool:
    """True if something listens at "unix:PATH" or "tcp:HOST:PORT"."""
    if address.startswith("unix:"):
        return _accepts(socket.AF_UNIX, address.removeprefix("unix:"))
    host, _, port = address.removeprefix("tcp:").rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _ANSWER_S).close()
    except OSError:
        return False
    return True


def _owner_of_port(port: int) -> int | None:
    """The user whose process listens at this TCP port of this machine; None: not known."""
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError), open(f"/proc/net/{name}") as table:
            for line in list(table)[1:]:
                fields = line.split()
                if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                    return int(fields[7])
    return None


def local_daemons() -> Iterator[str]:
    """Addresses of this machine at which a daemon that is meant for this user may answer: not one that
    another person has started."""
    path = _default_socket()
    if _accepts(socket.AF_UNIX, path):
        yield f"unix:{path}"
    owner = _owner_of_port(_PORT)
    if owner is not None and (owner < 1000 or owner == os.geteuid()):
        yield f"tcp:127.0.0.1:{_PORT}"


def _state_directory(name: str, fallback: str) -> str:
    """Where the store of a daemon that was started lies. Home directories may be shared by machines."""
    home = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    for parent in (os.path.join(home, "syncd-auto", socket.gethostname()), fallback):
        try:
            os.makedirs(os.path.join(parent, name), 0o700, exist_ok=True)
            return os.path.join(parent, name)
        except OSError as error:
            problem = error
    raise error_of(Status.E_STORE, f"no directory for a store can be made: {problem}")


def _prune(parent: str, keep: str, sockets: str) -> None:
    """Removes the stores of launches that ended more than 30 days ago."""
    with contextlib.suppress(OSError):
        for name in os.listdir(parent):
            log = os.path.join(parent, name, "log")
            if name == keep or not os.path.exists(log):
                continue
            if time.time() - os.stat(log).st_mtime > _PRUNE_S and not _accepts(
                socket.AF_UNIX, os.path.join(sockets, f"{name}.sock")
            ):
                shutil.rmtree(os.path.join(parent, name), ignore_errors=True)


class Host(NamedTuple):
    """Where a daemon listens; nothing: at its Unix socket alone."""

    listens: str = ""
    shown: str = ""
    """As the other machines know it."""


def host_for_others(master: str) -> Host:
    """Where this machine, which rank 0 runs on, is reached from the other machines of the launch."""
    with contextlib.suppress(OSError):
        for family, _, _, _, address in socket.getaddrinfo(master, 0, 0, socket.SOCK_STREAM):
            numeric = str(address[0])
            if is_loopback(numeric) and not is_loopback(master):
                return Host("0.0.0.0", master)  # Debian's /etc/hosts: the own name is 127.0.1.1
            with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.bind((numeric, 0))
                return Host(numeric, numeric)
            # Another name of this machine's, such as a service's: what is used to reach it.
            with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((numeric, 9))  # sends nothing
                numeric = str(probe.getsockname()[0])
                return Host(numeric, numeric)
    return Host("0.0.0.0", socket.gethostname())


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _toml(text: str) -> str:
    return json.dumps(text)


class _NotStarted(Exception):
    """A daemon ended while it started; what it said."""


def _start(
    directory: Directory, host: Host, token_file: str, deadline: float, key: str
) -> tuple[str, str]:
    """Starts a daemon as a process of its own, which no signal to this process or its group reaches.
    Its address, and what a log says of it."""
    program = find_program("syncd")
    state = _state_directory(directory.name, directory.path)
    _prune(os.path.dirname(state), directory.name, directory.path)
    log, ready = os.path.join(state, "log"), directory.file("ready")
    lines = [
        f'# {key}: written by syncd.connect("auto")',
        "[listen]",
        f"unix = {_toml(directory.socket)}",
        f"tcp = {_toml(f'{_bracketed(host.listens)}:0' if host.listens else 'off')}",
        'admin = "off"',
        f"insecure = {'true' if host.listens else 'false'}",
        "auto_create = true",
        "[store]",
        f"path = {_toml(os.path.join(state, 'store'))}",
        'mode = "fast"',  # rank 0 does not survive a crash of its machine either
        "[timeouts]",
        f'exit_when_idle = "{IDLE_S}s"',
        "[log]",
        f"file = {_toml(log)}",
    ]
    if token_file:
        lines += ["[auth]", f"token_file = {_toml(os.path.abspath(token_file))}"]
    config = directory.write("toml", "\n".join(lines) + "\n")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(ready)
    begun = os.stat(log).st_size if os.path.exists(log) else 0
    # The daemon holds the pipe's other end until it ends. The shell makes it nobody's child.
    pipe, held = os.pipe()
    with open(pipe, "rb") as ended:
        try:
            pid = subprocess.run(
                ["/bin/sh", "-c", '"$@" </dev/null >>"$0" 2>&1 & echo $!', log]
                + [program, "--config", config, "--ready-file", ready],
                env={k: v for k, v in os.environ.items() if not k.startswith("SYNCD_")},
                cwd="/",
                start_new_session=True,
                pass_fds=[held],
                stdout=subprocess.PIPE,
                stdin=subprocess.DEVNULL,
                check=True,
                text=True,
            ).stdout.strip()
        finally:
            os.close(held)
        while not (os.path.exists(ready) and os.path.getsize(ready)):
            if select.select([ended], [], [], 0.01)[0]:
                with open(log, "rb") as file:
                    file.seek(begun)
                    said = file.read().decode(errors="replace").strip()
                reasons = re.findall(r'\breason="(.*?)"(?: |$)', said, re.MULTILINE) or [
                    said[-2000:]
                ]
                raise _NotStarted(f"{program} could not start: {reasons[-1]} (its log: {log})")
            if time.monotonic() >= deadline:
                raise error_of(
                    Status.E_TIMEOUT, f"{program} (pid {pid}) is not ready; its log: {log}"
                )
    with open(ready) as file:
        addresses = file.read().split()
    chosen = next(
        each for each in addresses if each.startswith("tcp:" if host.listens else "unix:")
    )
    if host.listens:
        chosen = f"tcp:{_bracketed(host.shown)}:{chosen.rpartition(':')[2]}"
    told = f"started (pid {pid}, store and log in {state}; ends {IDLE_S} s after its last client)"
    return chosen, told


# ---- The choice ----------------------------------------------------------------------------------

Open = Callable[[str, str, float], Any]
"""A client for an address and a token_file ("": as the caller says), within so many seconds."""


class _Choice:
    """One connect("auto")."""

    def __init__(self, place: Place, open_client: Open, token_file: str, seconds: float) -> None:
        self._place = place
        self._open = open_client
        self._token_file = token_file
        self._seconds = seconds
        self._deadline = time.monotonic() + seconds
        self._directory = Directory(place.launch)
        self._board: Directory | MasterStore = self._directory
        if place.several_machines:
            self._board = MasterStore(place, self._deadline)

    def connect(self) -> Any:
        if self._place.rank != 0:
            return self._follow()
        with self._directory.choosing(self._deadline):
            return self._choose()

    def _say(self, address: str, what: str) -> None:
        place = self._place
        whose = f"rank {place.rank} of {place.world_size}"
        _log.info('connect("auto"): %s uses the daemon at %s: %s', whose, address, what)

    def _try(self, published: Published) -> Any:
        """A client, or the reason why there is none."""
        token_file = self._token_file
        if published.token and not token_file:
            token_file = self._directory.write("token", published.token + "\n")
        if not _listens(published.address):
            return error_of(Status.E_UNREACHABLE, "nothing listens there")
        left = max(0.05, min(_ANSWER_S, self._deadline - time.monotonic()))
        try:
            return self._open(published.address, token_file, left)
        except Invalid:
            raise  # an argument of the caller's
        except Error as error:
            return error

    def _follow(self) -> Any:
        problem = 'rank 0 has published none for this launch; it does so in its own connect("auto")'
        while True:
            published = self._board.read()
            if published is not None:
                client = self._try(published)
                if not isinstance(client, Error):
                    self._say(published.address, "rank 0 has published it")
                    return client
                problem = f"rank 0 has published {published.address}, and: {client.message}"
            if time.monotonic() >= self._deadline:
                place = self._place
                raise error_of(
                    Status.E_UNREACHABLE,
                    f'connect("auto"): rank {place.rank} of {place.world_size} has no daemon after '
                    f"{self._seconds:g} s: {problem} (key: {place.launch})",
                )
            time.sleep(self._board.poll_s)

    def _choose(self) -> Any:
        for published in self._known():
            client = self._try(published)
            if not isinstance(client, Error):
                self._board.publish(published)
                self._directory.publish(published)
                self._say(published.address, "this launch has used it before")
                return client
        if not self._place.several_machines:
            for address in local_daemons():
                client = self._try(Published(address))
                if isinstance(client, Error):
                    _log.info('connect("auto"): not the daemon at %s: %s', address, client)
                    continue
                self._board.publish(Published(address))
                self._say(address, "it runs on this machine")
                return client
        return self._start()

    def _known(self) -> list[Published]:
        found = [self._board.read(), self._directory.read()]
        known = [each for each in dict.fromkeys(found) if each is not None]
        if self._place.several_machines:  # what the other machines cannot reach is of no use
            known = [each for each in known if not each.address.startswith("unix:")]
        return known

    def _start(self) -> Any:
        several = self._place.several_machines
        host = host_for_others(os.environ["MASTER_ADDR"]) if several else Host()
        token, token_file = "", self._token_file
        if several and not token_file:
            token = secrets.token_hex(32)
            token_file = self._directory.write("token", token + "\n")
        while True:
            try:
                address, told = _start(
                    self._directory, host, token_file, self._deadline, self._place.launch
                )
            except ProgramNotFound as error:
                raise error_of(
                    Status.E_UNREACHABLE,
                    f'connect("auto"): no daemon answers on this machine, and: {error}',
                ) from None
            except _NotStarted as error:
                # One that ends just now has its store and socket for a moment still.
                if "in use" not in str(error) or time.monotonic() >= self._deadline:
                    raise error_of(Status.E_UNREACHABLE, f'connect("auto"): {error}') from None
                time.sleep(Directory.poll_s)
                continue
            published = Published(address, token)
            client = self._try(published)
            if isinstance(client, Error):
                raise client
            self._board.publish(published)
            self._directory.publish(published)
            self._say(address, told)
            return client


def connect(open_client: Open, token_file: str, seconds: float) -> Any:
    """What connect("auto") returns. Raises Unreachable, Timeout, Invalid and Error."""
    return _Choice(place_of(os.environ), open_client, token_file, seconds).connect()
