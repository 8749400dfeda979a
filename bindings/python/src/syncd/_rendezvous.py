"""A rendezvous handler of torch's over a gather job of syncd's: what torchrun.py registers."""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import json
import logging
import os
import re
import select
import socket
import sys
import time
import weakref
from datetime import timedelta
from typing import Any, Callable, Iterator, NamedTuple, Protocol

from . import _values
from . import client as _client
from ._address import own_address
from ._round_store import CONFIRMED, LIVES, Line, RoundStore, StoreLost
from .errors import (
    Cancelled,
    Closed,
    Error,
    Fenced,
    Invalid,
    Status,
    Timeout,
    Unreachable,
    WrongIteration,
)

_log = logging.getLogger("syncd.torchrun")

BACKEND = "syncd"
_JOB_PREFIX = "rdzv."
_JOB_BYTES_MAX = 64
_LAUNCH_BYTES_MAX = _JOB_BYTES_MAX - len(_JOB_PREFIX)
_DATA_VERSION = 1
# How often whoever waits says for whom.
_SAY_S = 10.0


# ---- Settings ------------------------------------------------------------------------------------


class Settings(NamedTuple):
    """What `--rdzv-*` and `--nnodes` say."""

    run_id: str
    launch: str
    """The run id as the name of a launch; job `rdzv.<launch>`."""
    policy: str
    address: str | None
    """None: SYNCD_ADDR, or this machine."""
    name: str
    local_addr: str | None
    join_timeout: float
    confirm_timeout: float
    files: dict[str, str]
    """Of connect(): token_file, ca_file, certificate_file, key_file, server_name."""

    @property
    def job(self) -> str:
        return _JOB_PREFIX + self.launch


# Keys of --rdzv-conf. torch itself adds "timeout", which is c10d's.
_POLICY_KEYS = ("last_call", "regroup_wait", "straggle_wait")
_FILE_KEYS = {
    "token_file": "token_file",
    "ca": "ca_file",
    "certificate": "certificate_file",
    "key": "key_file",
    "server_name": "server_name",
}
# The daemon's explanation of a round that cannot begin yet (policy gather).
_LACKS_MEMBERS = re.compile(r"\bround [0-9]+ needs [0-9]+ members")
_OTHER_KEYS = ("join_timeout", "confirm_timeout", "local_addr", "name")
_IGNORED_KEYS = ("timeout",)
_FILE_VARIABLES = {
    "token_file": "SYNCD_TOKEN_FILE",
    "ca_file": "SYNCD_CA_FILE",
    "certificate_file": "SYNCD_CERTIFICATE_FILE",
    "key_file": "SYNCD_KEY_FILE",
    "server_name": "SYNCD_SERVER_NAME",
}


def launch_name(run_id: str) -> str:
    """A run id as part of a job's name: characters that are not allowed there become "_", and what is
    changed or too long ends with a hash, so that two run ids never become one."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", run_id)
    if plain == run_id and 0 < len(plain) <= _LAUNCH_BYTES_MAX:
        return plain
    tail = "-" + hashlib.sha256(run_id.encode()).hexdigest()[:8]
    return plain[: _LAUNCH_BYTES_MAX - len(tail)] + tail


_SPAN_S = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def _duration(key: str, value: Any) -> str:
    text = str(value).strip()
    if re.fullmatch(r"[0-9]+", text):
        return text + "s" if text != "0" else "0"
    if found := re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(ms|s|min|h)", text):
        number, unit = found.groups()
        if "." in number:  # which the policy does not take
            return f"{round(float(number) * _SPAN_S[unit] * 1000)}ms"
        return number + unit.replace("min", "m")
    raise ValueError(
        f"--rdzv-conf {key}={text!r}; allowed: whole seconds, or a number with ms, s, min or h, such as "
        "500ms, 1.5s, 1min"
    )


def _meaning(policy: str) -> Any:
    """What a policy's text says, so that two texts can be compared: "120s" is "2m"."""
    sizes, *rest = policy.removeprefix("gather:").split(",")
    low, _, high = sizes.partition("-")
    spans = {"last_call": 2.0, "regroup_wait": 0.0, "straggle_wait": 60.0}
    for one in rest:
        key, _, value = one.partition("=")
        found = re.fullmatch(r"([0-9.]+)(us|ms|s|m|min|h)?", value)
        if found is None:
            return policy
        spans[key] = round(float(found[1]) * _SPAN_S[found[2] or "s"], 6)
    return low, high or low, spans


def _seconds(key: str, value: Any) -> float:
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        seconds = -1
    if not 0 < seconds < 1e9:
        raise ValueError(f"--rdzv-conf {key}={value!r}; allowed: seconds, above 0 and below 1e9")
    return seconds


def read_settings(parameters: Any) -> Settings:
    """Of torch's RendezvousParameters. Raises ValueError."""
    conf: dict[str, Any] = dict(parameters.config)
    allowed = [*_POLICY_KEYS, *_FILE_KEYS, *_OTHER_KEYS]
    for key in conf:
        if key not in allowed and key not in _IGNORED_KEYS:
            raise ValueError(f"--rdzv-conf has {key!r}; allowed: {', '.join(sorted(allowed))}")
    if not parameters.run_id:
        raise ValueError("--rdzv-id is empty; give each run a name of its own")
    if parameters.run_id == "none":
        _log.warning("no --rdzv-id was given: all such runs on this daemon meet each other")
    low, high = parameters.min_nodes, parameters.max_nodes
    policy = f"gather:{low}" if low == high else f"gather:{low}-{high}"
    for key in _POLICY_KEYS:
        if key in conf:
            policy += f",{key}={_duration(key, conf[key])}"
    if _meaning(policy)[2]["regroup_wait"] > 0 and not conf.get("name"):
        _log.warning(
            "--rdzv-conf regroup_wait=%s does nothing without name=...: an agent that is started again has "
            "another name, HOST-PID, and is not taken for the lost one",
            conf["regroup_wait"],
        )
    local_addr = getattr(parameters, "local_addr", None) or conf.get("local_addr")
    return Settings(
        run_id=parameters.run_id,
        launch=launch_name(parameters.run_id),
        policy=policy,
        address=parameters.endpoint.strip() or None,
        name=conf.get("name") or f"{socket.gethostname()}-{os.getpid()}",
        local_addr=local_addr,
        join_timeout=_seconds("join_timeout", conf.get("join_timeout", 600)),
        confirm_timeout=_seconds("confirm_timeout", conf.get("confirm_timeout", 60)),
        files={_FILE_KEYS[key]: conf[key] for key in _FILE_KEYS if key in conf},
    )


# ---- The member of the gather job ----------------------------------------------------------------


class TimedOut(Exception):
    """No round within join_timeout."""


# Of what started this agent, and of its workers: a join would take it for its own.
_NOT_OURS = re.compile(
    r"SYNCD_(JOB|LAUNCH)|RANK|WORLD_SIZE|(SLURM|OMPI|TORCHELASTIC)_.*", re.ASCII
)


@contextlib.contextmanager
def _environment_without(pattern: re.Pattern[str]) -> Iterator[None]:
    hidden = {name: os.environ.pop(name) for name in list(os.environ) if pattern.fullmatch(name)}
    try:
        yield
    finally:
        os.environ.update(hidden)


def _compare_policies(settings: Settings, policy: str) -> None:
    if _meaning(policy) != _meaning(settings.policy):
        _log.warning(
            "rendezvous %r runs with %s, not with %s as --nnodes and --rdzv-conf say here: an agent "
            "that is still there, or an operator, has said so",
            settings.run_id,
            policy,
            settings.policy,
        )


class Member:
    """This agent in the gather job. One thread."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._client: _client.Client | None = None
        self._worker: _client.Worker | None = None
        self._lacking_since = 0.0

    def _joined(self) -> _client.Worker:
        settings = self._settings
        if self._client is None:
            hidden = "SYNCD_ADDR" if settings.address is not None else "(?!)"
            with _environment_without(re.compile(hidden)):
                self._client = _client.connect(
                    settings.address, name=f"torchrun {settings.name}", **settings.files  # type: ignore[arg-type]
                )
        if self._worker is None:
            with _environment_without(_NOT_OURS):
                self._worker = self._client.join(settings.job, settings.policy, name=settings.name)
            _compare_policies(settings, self._worker.policy)
        return self._worker

    def begin(self, data: bytes) -> _values.Step:
        """Waits for the next round. Raises TimedOut, and errors of syncd's."""
        said = self._lacking_since = time.monotonic()
        attempts = 0
        while True:
            worker = self._joined()
            try:
                worker.arrive(data)
                while (step := worker.poll()) is None:
                    # A signal's handler ends this wait at once.
                    select.select([worker.fileno()], [], [], 1.0)
                    if time.monotonic() - said >= _SAY_S:
                        said = time.monotonic()
                        self._say(worker)
                return step
            except Timeout:
                pass  # of the client's own limit: what was asked for stands
            except (Fenced, WrongIteration) as error:
                # Given up meanwhile: it comes back as a newcomer.
                attempts += 1
                if attempts > 3:
                    raise
                _log.info("joining anew: %s", error)
                if isinstance(error, Fenced):
                    self._worker = None

    def _say(self, worker: _client.Worker) -> None:
        try:
            why = worker.explain(timeout=1)
        except Error as error:
            _log.warning("syncd: waiting for the daemon: %s", error)
            return
        if why is None:
            return
        _log.warning("syncd: %s", why)
        # join_timeout limits how long a round may lack members. For any other reason, such as being a
        # spare, the wait has no limit.
        if not _LACKS_MEMBERS.search(why.text):
            self._lacking_since = time.monotonic()
        elif (waited := time.monotonic() - self._lacking_since) >= self._settings.join_timeout:
            raise TimedOut(f"no round after {waited:.0f} s (join_timeout): {why}")

    def round(self) -> _values.Round:
        assert self._worker is not None
        return self._worker.round()

    def leave(self, kind: str, reason: str) -> None:
        """Ends the membership. Never raises: without it the daemon loses the member a little later."""
        if self._worker is None:
            return
        try:
            self._worker.leave(timeout=5, kind=kind, reason=reason[:1000])
        except Error as error:
            _log.info("left without a word: %s", error)

    def close(self) -> None:
        self._worker = None
        if self._client is not None:
            self._client.close()


# ---- Stores --------------------------------------------------------------------------------------


class Server(Protocol):
    store: Any
    port: int


class Stores(Protocol):
    """Makes torch's stores."""

    def open(self) -> Any:
        """A new store on a new port of this machine; has `port`."""

    def connect(self, host: str, port: int, timeout: timedelta) -> Any: ...


def reach_address(settings: Settings) -> str:
    """At which address the others reach this agent."""
    return settings.local_addr or own_address(settings.address)


def encode_address(host: str, port: int) -> bytes:
    return json.dumps({"v": _DATA_VERSION, "host": host, "port": port}).encode()


def decode_address(data: bytes) -> tuple[str, int]:
    """Raises ValueError."""
    try:
        given = json.loads(data)
        return str(given["host"]), int(given["port"])
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"the round's first member shows no store, but {data[:80]!r}") from error


# ---- The handler ---------------------------------------------------------------------------------


class Finished(SystemExit):
    """The others have ended their work, so this agent's process ends well.

    Not torch's RendezvousGracefulExitError: its agent takes that, returns None, and its launcher then
    fails of it (torch 2.4 to 2.14: "'NoneType' object has no attribute 'is_failed'").
    """

    def __init__(self, reason: str) -> None:
        super().__init__(0)
        self.reason = reason


class Failures(NamedTuple):
    """torch's exception types, as this version of it has them."""

    closed: type[Exception]
    timeout: type[Exception]
    connection: type[Exception]
    state: type[Exception]


class Entered(NamedTuple):
    """A complete round."""

    store: RoundStore
    rank: int
    size: int
    host: str
    port: int


class _Round:
    """The round that this agent is in, for its store."""

    def __init__(self, member: Any, number: int, has_failed: Callable[[], bool]) -> None:
        self._member = member
        self._has_failed = has_failed
        self.number = number
        self.finished = False
        self.broken_here = ""

    def state(self) -> _values.Round:
        found: _values.Round = self._member.round()
        return found if found.number == self.number else _values.Round(self.number, 0, 0)

    def is_broken(self) -> bool:
        return bool(self.broken_here) or self.state().gone > 0

    def break_up(self, why: str) -> None:
        self.broken_here = self.broken_here or why

    def end(self) -> bool:
        if self._has_failed():
            return False  # shutdown() follows, which knows why
        self.finished = True
        self._member.leave("finished", "")
        return True


def _agents_frame() -> Any:
    """Of a method of torch's agent that is calling; None: there is none."""
    frame = sys._getframe(1)
    while frame is not None:
        if getattr(frame.f_locals.get("self"), "_worker_group", None) is not None:
            return frame
        frame = frame.f_back  # type: ignore[assignment]
    return None


def _agent_has_failed() -> bool:
    """Whether torch's agent that is calling writes its terminal state because its workers failed: it
    writes the same in either case."""
    frame = _agents_frame()
    if frame is None:
        return False
    return getattr(frame.f_locals["self"]._worker_group.state, "name", "") == "FAILED"


def _failed_worker(error: BaseException | None) -> str:
    """Which of this agent's workers has failed first, and how; empty: none that is known."""
    failures = getattr(error, "failures", None)
    frame = _agents_frame()
    while not failures and frame is not None:  # torch 2.6 shuts down before it raises that
        result = frame.f_locals.get("run_result") or frame.f_locals.get("result")
        failures = getattr(result, "failures", None)
        frame = frame.f_back
    if not failures:
        return ""
    rank, failure = min(failures.items(), key=lambda one: getattr(one[1], "timestamp", 0))
    code = failure.exitcode
    return f"worker {rank} ended " + (f"by signal {-code}" if code < 0 else f"with exit code {code}")


class Core:
    """The handler without torch: what its methods do. One thread."""

    def __init__(
        self,
        settings: Settings,
        member: Any,
        stores: Any,
        failures: Failures,
        store_error: type[Exception] = RuntimeError,
        signal_error: type[BaseException] | None = None,
        has_failed: Callable[[], bool] = _agent_has_failed,
    ) -> None:
        self.settings = settings
        self._member = member
        self._stores = stores
        self._failures = failures
        self._store_error = store_error
        self._signal_error = signal_error
        self._has_failed = has_failed
        self._round: _Round | None = None
        self._store: RoundStore | None = None
        self._line: Line | None = None
        self._server: Any = None  # this agent's store, also where another's is used: it shows life
        self._asked_to_reform = False
        self._closed = False
        self._shut = False
        atexit.register(_shut_down_at_exit, weakref.ref(self))

    # ---- next_rendezvous

    def enter(self) -> Entered:
        if self._closed or self._shut:
            raise self._failures.closed(f"rendezvous {self.settings.run_id!r} is closed here")
        if self._store is not None:
            self._store.begin_anew()
        old, old_server = self._line, self._server
        while True:
            server = self._stores.open()
            host = reach_address(self.settings)
            step = self._begin(encode_address(host, server.port))
            if step.stop:
                self._stop(step.reason)
            entered = self._meet(step, server)
            if entered is not None:
                break
        if old is not None:
            old.close()  # only now: workers of slower agents may still use it
        del old, old_server
        self._asked_to_reform = False
        self._tell_workers(step.view)
        return entered

    def _begin(self, data: bytes) -> _values.Step:
        try:
            step: _values.Step = self._member.begin(data)
            return step
        except TimedOut as error:
            raise self._failures.timeout(str(error)) from error
        except (Unreachable, Cancelled) as error:
            raise self._failures.connection(error.message) from error
        except (Closed, Invalid) as error:
            raise self._failures.closed(error.message) from error
        except Error as error:
            is_auth = error.code in (Status.E_AUTH, Status.E_PROTOCOL, Status.E_SHUTDOWN)
            kind = self._failures.connection if is_auth else self._failures.state
            raise kind(error.message) from error

    def _stop(self, reason: str) -> None:
        self._closed = True
        crashed = self._round is not None and not self._asked_to_reform
        # A daemon says it so to who was cut off when that was decided.
        bare = reason.removeprefix(f"job '{self.settings.job}' has ended: ")
        if bare.startswith("finished") and not crashed:
            _log.info("%s", reason)
            raise Finished(reason)
        if crashed:
            reason = f"this agent's workers have failed, and it cannot start them again: {reason}"
        raise self._failures.closed(reason)

    def _meet(self, step: _values.Step, server: Any) -> Entered | None:
        """All members connect to the first one's store and confirm there; None: one was lost before."""
        round_ = self._round = _Round(self._member, step.view, self._has_failed)
        try:
            host, port = decode_address(step.view_data)
        except ValueError as error:
            raise self._failures.state(f"round {step.view}: {error}") from error
        end = time.monotonic() + self.settings.confirm_timeout
        _log.warning(
            "syncd: round %d: place %d of %d, store at %s:%d%s",
            step.view,
            step.view_rank,
            step.view_size,
            host,
            port,
            f" ({step.reason})" if step.reason else "",
        )

        def is_over() -> bool:
            return round_.is_broken() or time.monotonic() > end

        why = "its members did not confirm"
        store = server if step.view_rank == 0 else None
        while store is None and not is_over():
            try:
                # First a connection that can be given up.
                socket.create_connection((host, port), timeout=0.5).close()
                store = self._stores.connect(host, port, timedelta(seconds=5))
            except (OSError, RuntimeError) as error:
                why = str(error)
                time.sleep(0.05)
        if store is not None:
            line = Line(store)
            try:
                lives = f"{reach_address(self.settings)}:{server.port}"
                line.call(is_over, "set", f"{LIVES}{step.view_rank}", lives)
                line.call(is_over, "add", CONFIRMED, 1)
                pause_s = 0.001
                while not is_over():
                    if line.call(is_over, "add", CONFIRMED, 0) >= step.view_size:
                        self._line, self._server = line, server
                        self._store = RoundStore(
                            line, round_, step.view_rank, step.view_size, host, self._store_error
                        )
                        return Entered(self._store, step.view_rank, step.view_size, host, port)
                    time.sleep(pause_s)
                    pause_s = min(2 * pause_s, 0.1)
            except StoreLost as error:
                why = str(error)
                while not is_over():  # until the daemon has noticed it too
                    time.sleep(0.05)
            line.close()
        if round_.is_broken():
            _log.info("round %d is void: a member was lost before all had confirmed", step.view)
            return None
        self.shut_down(None)
        raise self._failures.connection(
            f"round {step.view}: no meeting at the store of its first member, {host}:{port}, within "
            f"{self.settings.confirm_timeout:g} s: {why}. Name an address that the others reach: "
            "--local-addr, or --rdzv-conf local_addr=..."
        )

    def _tell_workers(self, number: int) -> None:
        """Workers inherit this process's environment."""
        if self.settings.address is not None:
            os.environ["SYNCD_ADDR"] = self.settings.address
        for key, value in self.settings.files.items():
            os.environ[_FILE_VARIABLES[key]] = value
        os.environ["SYNCD_LAUNCH"] = f"{self.settings.launch}/{number}"

    # ---- The rest

    def waiting(self) -> int:
        """num_nodes_waiting: whether the round is broken, or there is room."""
        if self._round is None or self._round.finished:
            return 0
        _, gone, room = self._round.state()
        if self._round.broken_here:
            gone = max(gone, 1)
        if gone + room > 0:
            if not self._asked_to_reform:
                _log.info(
                    "round %d: %d gone, %d to be taken in: forming it anew",
                    self._round.number,
                    gone,
                    room,
                )
            self._asked_to_reform = True
        return gone + room

    def is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """set_closed: this agent takes part no more."""
        if not self._closed:
            self._closed = True
            if self._round is None or not self._round.finished:
                self._member.leave("left", "the rendezvous was closed")

    def shut_down(self, error: BaseException | None) -> bool:
        if self._shut:
            return True
        self._shut = True
        if self._closed or (self._round is not None and self._round.finished):
            pass  # it has left
        elif self._round is None:
            self._member.leave("left", "")
        elif self._signal_error is not None and isinstance(error, self._signal_error):
            self._member.leave("preempted", _first_line(error))
        else:
            self._member.leave("failed", _failed_worker(error) or _first_line(error))
        self._closed = True
        self._member.close()
        self._store = None
        if self._line is not None:
            self._line.close()
            self._line = self._server = None
        return True


def _first_line(error: BaseException | None) -> str:
    if error is None:
        return "its agent ended before its work was done"
    lines = [line.strip() for line in str(error).splitlines() if line.strip(" =-")]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _shut_down_at_exit(handler: weakref.ref[Core]) -> None:
    """torch does not call shutdown() of an agent that a signal ends."""
    found = handler()
    if found is not None:
        found.shut_down(getattr(sys, "last_value", None))
