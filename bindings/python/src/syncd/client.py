"""Client and Worker: the four calls, over <syncd/client.h>.

Every call that waits releases the interpreter's lock meanwhile. In the main thread a long wait is
made in pieces, so that Ctrl-C and other signal handlers of Python run between them.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import re
import threading
import time
import weakref
from types import TracebackType
from typing import Any, Callable, Iterator, Literal, Sequence

from ._arguments import (
    INT64_MAX,
    bytes_of,
    c_integer,
    c_text,
    hang_after_ms_of,
    option_ms_of,
    take_launch,
    take_resume,
    text_of,
    timeout_ms_of,
)
from ._callbacks import event_callback, inspect_callback, listeners
from ._library import ffi, load
from ._stacks import stacks
from ._values import (
    Checkpoint,
    CheckpointShard,
    Event,
    EventKind,
    Explanation,
    Member,
    MemberState,
    Members,
    Pushed,
    Round,
    Step,
    Update,
    View,
    ViewMember,
    WaitedFor,
)
from .errors import Closed, Error, Status, Timeout, Unreachable, error_of, first_line, is_failure, take_error

_RANK_ANY = -1
_MARK_COMPUTED = 1
_SHARDS_MAX = 2**32 - 1
# What a join's re-sync flag holds until the library has written its first 0 into it. It does that in
# the caller's call, when it has taken hold of the client and no longer needs the handle.
_NOT_ENTERED = 2

# The pieces of a long wait in the main thread. Each end of one asks the daemon for the reason,
# which is why they grow.
_SLICE_S_FIRST = 1.0
_SLICE_S_MAX = 4.0
# How often a call that waits says for what.
_SAY_S = 10.0

_LEAVE_KINDS = ("left", "finished", "failed", "preempted")

_log = logging.getLogger("syncd")


def connect(
    address: str | Sequence[str] | None = None,
    *,
    name: str | None = None,
    token_file: str | os.PathLike[str] | None = None,
    connect_timeout: float | None = None,
    reconnect_timeout: float | None = None,
    begin_timeout: float | None = None,
    request_timeout: float | None = None,
    ca_file: str | os.PathLike[str] | None = None,
    certificate_file: str | os.PathLike[str] | None = None,
    key_file: str | os.PathLike[str] | None = None,
    server_name: str | None = None,
) -> Client:
    """Opens a client and waits until a daemon has welcomed it. Use it in a `with` statement.

    address            one endpoint or several in order of preference: "unix:/run/syncd/syncd.sock",
                       "tls:host:7117", "tcp:host:7117", "host:7117" or "host"; at most 16, a list
                       or with commas between. They may belong to several daemons of which one at
                       a time takes connections. None: the default Unix socket, then
                       127.0.0.1:7117. "auto": rank 0 chooses a daemon of its machine, or starts
                       one, and the other ranks use that (see below)
    name               shown to operators; None: the program's name
    token_file         a file that holds the shared token
    connect_timeout    seconds for this call; None: 10, "auto": 60
    reconnect_timeout  seconds for which a lost daemon stays invisible to callers; None: 60
    begin_timeout      the default of begin(), targets() and collect(); None: wait for ever
    request_timeout    the default of the other calls; None: 60
    ca_file            for "tls:" addresses, in PEM, as are the next two: who may sign the daemon's
                       certificate; None: whom the system trusts
    certificate_file   this client's certificate; None: none
    key_file           its private key, which nobody else may read
    server_name        for whom the daemon's certificate must be made out; None: the address's host

    The environment (SYNCD_ADDR, SYNCD_TOKEN_FILE, SYNCD_CA_FILE, SYNCD_CERTIFICATE_FILE,
    SYNCD_KEY_FILE, SYNCD_SERVER_NAME, SYNCD_..._TIMEOUT_SEC) wins over these arguments; a timeout
    of 0 there means the default that is named here.

    "auto" takes the rank from RANK, SLURM_PROCID or OMPI_COMM_WORLD_RANK; without one, this process
    is rank 0 of one. Rank 0 takes the daemon that its launch used before if it answers, else one at
    the default addresses, else it starts one: a process of its own with a store in
    ~/.local/state/syncd-auto, which ends 60 s after its last client. The other ranks must call this
    too, and wait for what rank 0 chooses. Over several machines, rank 0 publishes it in torch's
    store at MASTER_ADDR; the daemon then listens there, without TLS, for clients with a token made
    for this launch. The logger "syncd" says at level INFO which daemon it is.

    Raises Unreachable, Invalid (an address that cannot be parsed, a file that cannot be used), Error
    and LibraryNotFound.
    """
    others: dict[str, Any] = {
        "name": name,
        "reconnect_timeout": reconnect_timeout,
        "begin_timeout": begin_timeout,
        "request_timeout": request_timeout,
        "ca_file": ca_file,
        "certificate_file": certificate_file,
        "key_file": key_file,
        "server_name": server_name,
    }
    if address == "auto":
        if chosen := os.environ.get("SYNCD_ADDR"):
            _log.info('connect("auto"): the daemon at %s, which SYNCD_ADDR names', chosen)
            address = None
        else:
            return _connect_auto(token_file, connect_timeout, others)
    try:
        return _open(address, token_file, connect_timeout, **others)
    except Unreachable as error:
        raise Unreachable(
            error.message + _START_ONE, error.code, error.name, error.retriable, error.fatal
        ) from None


_START_ONE = '. Start a daemon with `syncd` (or `python -m syncd`), or use syncd.connect("auto")'


def _connect_auto(
    token_file: str | os.PathLike[str] | None,
    connect_timeout: float | None,
    others: dict[str, Any],
) -> Client:
    from . import _auto  # not needed by those who name their daemon

    option_ms_of("connect_timeout", connect_timeout)
    seconds = _auto.TIMEOUT_S if connect_timeout is None else connect_timeout
    if variable := os.environ.get("SYNCD_CONNECT_TIMEOUT_SEC"):
        with contextlib.suppress(ValueError):  # which the library refuses
            seconds = float(variable) or _auto.TIMEOUT_S
    given = os.environ.get("SYNCD_TOKEN_FILE") or ("" if token_file is None else token_file)
    client: Client = _auto.connect(
        lambda address, token, left: _open(address, token or None, left, **others),
        os.fsdecode(given),
        seconds,
    )
    return client


def _open(
    address: str | Sequence[str] | None,
    token_file: str | os.PathLike[str] | None,
    connect_timeout: float | None,
    *,
    name: str | None,
    reconnect_timeout: float | None,
    begin_timeout: float | None,
    request_timeout: float | None,
    ca_file: str | os.PathLike[str] | None,
    certificate_file: str | os.PathLike[str] | None,
    key_file: str | os.PathLike[str] | None,
    server_name: str | None,
) -> Client:
    keep: list[Any] = []
    if address is not None and not isinstance(address, str):
        address = ",".join(address)
    options = ffi.new("syncd_client_options *")
    options.struct_size = ffi.sizeof("syncd_client_options")
    options.addresses = c_text("address", address, keep)
    options.client_name = c_text("name", name, keep)
    options.token_file = c_text("token_file", token_file, keep)
    options.connect_timeout_ms = option_ms_of("connect_timeout", connect_timeout)
    options.reconnect_timeout_ms = option_ms_of("reconnect_timeout", reconnect_timeout)
    options.begin_timeout_ms = option_ms_of("begin_timeout", begin_timeout)
    options.request_timeout_ms = option_ms_of("request_timeout", request_timeout)
    options.ca_file = c_text("ca_file", ca_file, keep)
    options.certificate_file = c_text("certificate_file", certificate_file, keep)
    options.key_file = c_text("key_file", key_file, keep)
    options.server_name = c_text("server_name", server_name, keep)
    lib = load()
    made = ffi.new("syncd_client **")
    error = ffi.new("syncd_error **")
    status = lib.syncd_client_open(options, made, error)
    if status:
        raise take_error(lib, status, error)
    # The library has accepted the variable: it is a number (0: the built-in default, whatever the
    # code says), empty or unset.
    variable = os.environ.get("SYNCD_BEGIN_TIMEOUT_SEC")
    default_s = float(variable) if variable else begin_timeout
    client = Client(lib, made[0], default_s or math.inf, os.environ.get("SYNCD_ADDR") or address)
    client._reconnect_s = reconnect_timeout
    return client


class Client:
    """A connection to a daemon, for any number of workers and threads. Made by connect()."""

    def __init__(
        self, lib: Any, handle: Any, begin_timeout_s: float, address: str | None = None
    ) -> None:
        self.address = address
        """The endpoints that it tries, with commas between; None: the default ones."""
        self._lib = lib
        self._handle = handle
        self._begin_timeout_s = begin_timeout_s
        self._reconnect_s: float | None = None  # as it was given
        self._pid = os.getpid()
        self._lock = threading.RLock()  # a signal handler may close the client
        self._joining: list[tuple[Any, int]] = []  # flag and thread of each join that is under way
        self._left_to_join: Any = None  # a handle that this thread's join has to close

    def join(
        self,
        job: str | None = None,
        policy: str | None = None,
        *,
        rank: int | None = None,
        world_size: int | None = None,
        name: str | None = None,
        host: str | None = None,
        data: bytes = b"",
        on_event: Callable[[Event], object] | None = None,
        timeout: float | None = None,
        views: bool = False,
        launch: str | tuple[str, int] | None = None,
        resume: str = "auto",
        resume_at: int | None = None,
        exit_grace: float | None = None,
        heartbeat_timeout: float | None = None,
        join_timeout: float | None = None,
        on_wait: Callable[[str], object] | None = _log.info,
        checkpoints: bool = False,
        hang_after: float | Literal["auto"] | None = None,
        on_inspect: Callable[[], str] | None = stacks,
    ) -> Worker:
        """Joins a job, without waiting for the other workers: the first begin() does that.

        job         1-64 of [A-Za-z0-9._-]; SYNCD_JOB wins; None: "default"
        policy      for the first joiner of a job that is not declared yet, such as "ssp:3"; for the
                    others it must match if it is given. None: the job's, or "bsp"
        rank        None: from RANK, SLURM_PROCID or OMPI_COMM_WORLD_RANK, else the daemon gives one
        world_size  workers expected before the job starts; None: from the environment, else what
                    the job says, else 1
        name, host  a worker that joins again under both gets its rank back
        data        what this worker shows to the others in members(), such as the address at which
                    it takes their updates; at most 1024 bytes
        on_event    is called with an Event on a thread of the client's, one call at a time; later
                    events wait meanwhile, and the connection does not. It may close this client,
                    and drop the last reference to it or to a worker; other methods of this client's
                    that may wait raise Error (SYNCD_E_STATE) in it
        views       a job that this join makes has views: a barrier of bsp or elastic_bsp grants the
                    same view to all that it releases. (gather always has them)
        launch      what started this process: a name that all its processes have (at most 64 bytes), or
                    (name, number) with a number that is higher each time they are started again.
                    Members of a lower number get STOP. None: from SYNCD_LAUNCH ("NAME/NUMBER"), else
                    TORCHELASTIC_RUN_ID or SLURM_JOB_ID; "": none
        resume      with which model this process begins where its job waits for a group of workers:
                    "new", at iteration 0; "continue", one that it has loaded; "auto": as "new"
        resume_at   the next iteration of the model that was loaded; means resume="continue"
        exit_grace  seconds that the daemon keeps this worker's place once its connection has closed
                    without leave(); 0: none. None: as the job says (3.5)
        heartbeat_timeout
                    seconds of this process's silence after which the daemon takes the worker's
                    connection for cut, 0.1 to 3600; None, or more than the daemon's (10): as it says
        join_timeout
                    seconds that begin() waits for the job's start before it raises Timeout, whatever its
                    own timeout; None: SYNCD_JOIN_TIMEOUT_SEC, else 600; math.inf: for ever
        on_wait     is called every 10 s, in the thread that waits in begin(), targets() or collect(),
                    with a sentence that says for what: "waiting for 1 of 4 workers: 3 (...)". By
                    default it goes to the logger "syncd", at level INFO. None: nothing is said
        checkpoints this worker saves when a step says so (step.checkpoint; syncd.checkpoint.Saver)
        hang_after  of a job that this join makes: once a worker has waited for so many seconds, in
                    begin() or between mark() and push(), all hear who is at fault
                    (EventKind.HANG). "auto": the daemon chooses; None: there is no watch
        on_inspect  says where this process is when an administrator asks (syncctl inspect), or when
                    it hangs; on a thread of its own. By default: the stacks of all threads. None:
                    it does not say

        Raises Invalid, Timeout, Unreachable, Stopped, Cancelled, Closed and Error (another policy, a
        rank that is taken, a limit that is reached).
        """
        keep: list[Any] = []
        options = ffi.new("syncd_join_options *")
        options.struct_size = ffi.sizeof("syncd_join_options")
        options.job = c_text("job", job, keep)
        options.policy = c_text("policy", policy, keep)
        options.name = c_text("name", name, keep)
        options.host = c_text("host", host, keep)
        options.rank = _RANK_ANY if rank is None else c_integer("rank", rank, 0, 2**31 - 1)
        options.world_size = (
            0 if world_size is None else c_integer("world_size", world_size, 1, 2**32 - 1)
        )
        if timeout == 0:  # which the library reads as the default
            raise error_of(Status.E_INVALID, "timeout=0; allowed for a join: above 0, or None")
        options.timeout_ms = timeout_ms_of("timeout", timeout)
        if not isinstance(data, bytes):
            raise TypeError(f"data is of type {type(data).__name__}; allowed: bytes")
        keep.append(ffi.from_buffer(data))
        options.data = keep[-1] if data else ffi.NULL
        options.data_size = len(data)
        options.views = bool(views)
        take_launch(options, launch, keep)
        take_resume(options, resume, resume_at)
        if exit_grace is not None:
            none = exit_grace == 0 and not isinstance(exit_grace, bool)
            options.exit_grace_ms = -1 if none else timeout_ms_of("exit_grace", exit_grace)
            if exit_grace > 86400:
                raise error_of(
                    Status.E_INVALID,
                    f"exit_grace={exit_grace!r}; allowed: at most 86400 seconds (a day)",
                )
        if heartbeat_timeout is not None:
            if not 0.1 <= heartbeat_timeout <= 3600:  # also of nan
                raise error_of(
                    Status.E_INVALID,
                    f"heartbeat_timeout={heartbeat_timeout!r}; allowed: 0.1 to 3600 seconds",
                )
            options.heartbeat_timeout_ms = round(heartbeat_timeout * 1000)
        options.join_timeout_ms = option_ms_of("join_timeout", join_timeout)
        options.checkpoints = bool(checkpoints)
        callback = None
        if on_event is not None:
            callback = options.on_event = event_callback(weakref.ref(self), on_event)
        inspector = None
        if on_inspect is not None:
            inspector = options.on_inspect = inspect_callback(on_inspect)
        if on_event is not None or on_inspect is not None:
            listeners.add(self)
        options.hang_after_ms = hang_after_ms_of(hang_after)
        flag = options.resync_flag = ffi.new("uint32_t *", _NOT_ENTERED)
        made = ffi.new("syncd_worker **")
        error = ffi.new("syncd_error **")
        with self._lock:
            if self._handle is None:
                raise error_of(Status.E_CLOSED, "join: this client is closed")
            handle = self._handle
            joining = (flag, threading.get_ident())
            self._joining.append(joining)
        try:
            status = self._lib.syncd_join(handle, options, made, error)
        finally:
            with self._lock:
                self._joining.remove(joining)
                left, self._left_to_join = self._left_to_join, None
            if left is not None:
                self._lib.syncd_client_close(left)
        if status:
            raise take_error(self._lib, status, error)
        return Worker(self, made[0], (flag, callback, inspector), on_wait)

    def latest_checkpoint(
        self,
        job: str | None = None,
        timeout: float | None = None,
        *,
        first: int = 0,
        count: int | None = None,
    ) -> Checkpoint:
        """The latest complete checkpoint of the job by this name, also of one that has ended, or of
        the one that had the name before.

        With `count` it has at most so many shards, from shard `first` on. count=0 is a short question,
        also in a job of 10,000 workers: is there one, and which are closed?

        Any thread. Raises Error (SYNCD_E_UNKNOWN_JOB: no job has or had this name), Timeout,
        Unreachable, Unsupported (an older daemon), Invalid, Cancelled, Closed.
        """
        keep: list[Any] = []
        found = ffi.new("syncd_checkpoint **")
        error = ffi.new("syncd_error **")
        lib = self._lib
        with self._lock:
            handle = self._handle
        if handle is None:
            raise error_of(Status.E_CLOSED, "latest_checkpoint: this client is closed")
        status = lib.syncd_latest_checkpoint_part(
            handle,
            c_text("job", job, keep),
            c_integer("first", first, 0, _SHARDS_MAX),
            _SHARDS_MAX if count is None else c_integer("count", count, 0, _SHARDS_MAX),
            timeout_ms_of("timeout", timeout),
            found,
            error,
        )
        if status:
            raise take_error(lib, status, error)
        given = ffi.gc(found[0], lib.syncd_checkpoint_free)
        listed = ffi.new("syncd_checkpoint_shard **")
        count = lib.syncd_checkpoint_list(given, listed)
        return Checkpoint(
            lib.syncd_checkpoint_number(given),
            lib.syncd_checkpoint_epoch(given),
            lib.syncd_checkpoint_iteration(given),
            lib.syncd_checkpoint_completed_us(given) / 1e6,
            tuple(
                CheckpointShard(one.shard, one.rank, one.iteration, text_of(one.location))
                for one in (listed[0][0:count] if count else ())
            ),
            lib.syncd_checkpoint_open(given),
            lib.syncd_checkpoint_closed(given),
            text_of(lib.syncd_checkpoint_closed_reason(given)),
            lib.syncd_checkpoint_shards(given),
        )

    def close(self) -> None:
        """Closes the connection: joins and calls of its workers that are blocked in other threads
        raise Cancelled within milliseconds, whatever their timeouts, and later ones Closed. Workers
        that have not left keep their place at the daemon for its exit_grace.

        May be called from any thread, in on_event, and again. Returns when no on_event of this
        client's is being called any more; in on_event, at once, and
        nothing is told after it.
        """
        with self._lock:
            handle, self._handle = self._handle, None
        if handle is None:
            return
        # The library forbids that a join begins while its client goes away; one that has begun is
        # cancelled. The few instructions between are waited for. In a forked child, nobody makes them.
        while self._pid == os.getpid() and (entering := self._entering()):
            if threading.get_ident() in entering:  # in a signal handler
                self._left_to_join = handle
                return
            time.sleep(0.0001)
        self._lib.syncd_client_close(handle)

    def _entering(self) -> list[int]:
        """The threads whose joins may not have taken hold of the client yet."""
        with self._lock:
            return [thread for flag, thread in self._joining if flag[0] == _NOT_ENTERED]

    @property
    def closed(self) -> bool:
        return self._handle is None

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None:
            self.close()


class Worker:
    """A worker of a job. Made by Client.join(); use it in a `with` statement, which leaves the job.

    One thread at a time, except should_resync(), explain(), members() and the properties; a call
    that is made while another thread is in one raises Error (SYNCD_E_STATE). Where a call takes
    `iteration`, None means the one that begin() granted last. Timeouts are in seconds; None: the
    client's default; math.inf: for ever; 0: do not wait. A call that is blocked when another thread
    closes the client raises Cancelled within milliseconds.
    """

    def __init__(
        self,
        client: Client,
        handle: Any,
        lent: Any = None,
        on_wait: Callable[[str], object] | None = None,
    ) -> None:
        lib = client._lib
        self._client = client  # keeps the connection alive
        self._lib = lib

        def free(freed: Any, _lent: Any = lent) -> None:  # which must live as long
            lib.syncd_worker_free(freed)

        # Freed with this object, when no thread can be in a call of it any more.
        self._handle = ffi.gc(handle, free)
        self._busy = threading.Lock()
        self._error = ffi.new("syncd_error **")
        self._step = ffi.new("syncd_step *")
        self._step.struct_size = ffi.sizeof("syncd_step")
        self._info = ffi.new("syncd_push_info *")
        self._info.struct_size = ffi.sizeof("syncd_push_info")
        self._flags = ffi.new("uint32_t *")
        self._count = ffi.new("size_t *")
        self._ready = ffi.new("int32_t *")
        self._resync: Callable[[Any], int] = lib.syncd_should_resync
        self._rank: int = lib.syncd_worker_rank(handle)
        self._world_size: int = lib.syncd_worker_world_size(handle)
        self._job: str = ffi.string(lib.syncd_worker_job(handle)).decode()
        self._policy: str = ffi.string(lib.syncd_worker_policy(handle)).decode()
        self._on_wait = on_wait
        self._granted: int | None = None  # the iteration granted last
        self._going = 0  # the thread that ends this process
        self._collected: int | None = None

    @property
    def client(self) -> Client:
        return self._client

    @property
    def rank(self) -> int:
        return self._rank

    @property
    def world_size(self) -> int:
        """Workers expected, as the daemon told at the join."""
        return self._world_size

    @property
    def job(self) -> str:
        return self._job

    @property
    def policy(self) -> str:
        """The job's policy, as the daemon told at the join."""
        return self._policy

    @property
    def resumed(self) -> bool:
        """Whether a step said that the group continued at an iteration beyond 0. Ask after the first
        step."""
        return bool(self._lib.syncd_worker_resumed(self._handle))

    @property
    def start_iteration(self) -> int | None:
        """The iteration of the first step, or of the latest with `resumed`; None before the first."""
        start = int(self._lib.syncd_worker_start_iteration(self._handle))
        return None if start < 0 else start

    # ---- The loop

    def begin(self, timeout: float | None = None, data: bytes | None = None) -> Step:
        """Asks to start the next iteration and waits until the job's policy grants it.

        data: in a job with views, what this and the next begins show to the others of the view, at most
        1024 bytes; None: what the last one did.

        Survives a lost connection and a restart of the daemon. Timeout says the rule, its numbers
        and who is waited for (`error.missing`), and the request stays standing: begin() again waits
        on. After the job has ended it answers with step.stop.
        Raises Timeout, Unreachable, Error (SYNCD_E_STATE: the iteration before was not pushed),
        Fenced, Cancelled, Closed.
        """
        self._set_data(data)
        self._wait("timeout", timeout, self._begin)
        return self._take_step()

    def _set_data(self, data: bytes | None) -> None:
        if data is None:
            return
        if not isinstance(data, bytes):
            raise TypeError(f"data is of type {type(data).__name__}; allowed: bytes")
        self._call(self._lib.syncd_worker_set_data, ffi.from_buffer(data), len(data))

    def _take_step(self) -> Step:
        raw = self._step
        flags = raw.flags
        step = Step(
            raw.iteration,
            flags & 1 != 0,
            flags & 2 != 0,
            flags & 4 != 0,
            flags & 8 != 0,
            raw.staleness,
            raw.view,
            raw.view_rank,
            raw.view_size,
            bytes_of(raw.view_data, raw.view_data_size),
            text_of(raw.reason) if raw.reason else "",
            flags & 16 != 0,
            self._lib.syncd_worker_checkpoint(self._handle) if flags & 32 else 0,
        )
        if not step.stop:
            self._granted = step.iteration
        return step

    # ---- Beginning without blocking

    def arrive(self, data: bytes | None = None) -> None:
        """Asks to start the next iteration, as begin() does, and does not wait. poll() takes the
        answer; so does begin(), which waits for it."""
        self._set_data(data)
        self._call(self._lib.syncd_worker_arrive)

    def poll(self) -> Step | None:
        """The answer to arrive(); None: it is not there yet.

        Raises what begin() does, but for Timeout; Error (SYNCD_E_STATE) if nothing was asked for.
        """
        self._call(self._lib.syncd_worker_poll, self._ready, self._step)
        return self._take_step() if self._ready[0] else None

    def fileno(self) -> int:
        """A descriptor that is readable while poll() has an answer, for select, selectors and event
        loops. The worker's; do not read from it."""
        self._call(self._lib.syncd_worker_descriptor, self._ready)
        return int(self._ready[0])

    def should_resync(self) -> bool:
        """Whether the daemon advises to drop the iteration being computed and to start it again on
        fresher parameters. Costs one atomic load and one call from Python. Any thread."""
        return self._resync(self._handle) != 0

    def restarted(self, iteration: int | None = None, timeout: float | None = None) -> None:
        """Tells that this worker followed should_resync(). Call it before the pull."""
        self._tell(self._lib.syncd_worker_restarted, self._which(iteration), timeout)

    def mark(self) -> None:
        """Marks that this worker has computed its iteration; what follows until push() is exchange
        with the others. For a loop with an all-reduce between begin() and push(): without the mark,
        all workers look as slow as the slowest.

            step = worker.begin()
            loss.backward()
            torch.cuda.synchronize()  # on a GPU: mark when it has computed
            worker.mark()
            all_reduce(gradients)
            worker.push()

        Sends nothing and reads one clock; the last mark of an iteration counts.
        Raises Error (SYNCD_E_STATE) before begin() and after push().
        """
        self._call(self._lib.syncd_worker_mark, _MARK_COMPUTED)

    def phase(
        self, name: str | None, lease: float = 0, timeout: float | None = None
    ) -> contextlib.AbstractContextManager[None]:
        """Tells that this worker is in a long phase, such as an evaluation or a checkpoint, in
        which it is not late: it is neither warned of nor given up for `lease` seconds.

            with worker.phase("checkpoint", lease=600):
                ...

        It also holds without `with`, and ends with the lease, the next begin() or push(), another
        call, or phase(None).

        name: 1-64 of [A-Za-z0-9._-]; None: the phase is over. lease: up to 24 hours. timeout: 0
        leaves the telling to the library.
        Raises Invalid, Timeout, Unreachable, Unsupported (an older daemon), Fenced, Cancelled,
        Closed, Error.
        """
        keep: list[Any] = []
        if isinstance(lease, bool) or not isinstance(lease, (int, float)):
            kind = type(lease).__name__
            raise TypeError(f"lease is of type {kind}; allowed: a number of seconds")
        if not abs(lease) < 1e9:  # inf, nan, and what would not fit the library's milliseconds
            raise error_of(
                Status.E_INVALID,
                f"lease={lease!r}; allowed: more than 0 and at most 86400 s (24 h)",
            )
        lease_ms = math.ceil(lease * 1000)
        self._call(
            self._lib.syncd_worker_phase,
            c_text("name", name, keep),
            lease_ms,
            timeout_ms_of("timeout", timeout),
        )
        return self._phase()

    @contextlib.contextmanager
    def _phase(self) -> Iterator[None]:
        try:
            yield
        finally:
            # A worker that is no member any more is in no phase.
            with contextlib.suppress(Error):
                self.phase(None, timeout=0)

    def push(
        self,
        loss: float | None = None,
        samples: int = 0,
        bytes: int = 0,
        *,
        iteration: int | None = None,
        timeout: float | None = None,
    ) -> Pushed:
        """Tells that this worker's update is visible to the others; returns when the daemon has it
        on disk (a durable job) or in memory (a fast one). It counts exactly once, also when the
        call is made again after Timeout or Unreachable.

        loss: this worker's training loss; samples: in this update; bytes: its size. Each may be
        left out.
        Raises Timeout, Unreachable, WrongIteration, Stopped, Fenced, Cancelled, Closed, Error.
        """
        info = self._info
        which = self._which(iteration)
        info.loss = math.nan if loss is None else loss
        info.samples = c_integer("samples", samples, 0, 2**64 - 1)
        info.bytes = c_integer("bytes", bytes, 0, 2**64 - 1)
        timeout_ms = timeout_ms_of("timeout", timeout)
        self._call(self._lib.syncd_push, which, info, timeout_ms, self._flags)
        return Pushed(which, self._flags[0] & 1 != 0)

    def leave(
        self, timeout: float | None = None, *, kind: str = "left", reason: str = ""
    ) -> None:
        """Leaves the job: the others no longer wait for this worker.

        kind, reason  how and why, which the history keeps and syncctl shows: "left", "finished" (its
                      work is done), "failed", "preempted" (its machine is taken away). One that has
                      failed or was preempted counts as lost: if no other is left, the job waits for it.
                      With on_failure = "stop" in its [[job]] table, one that has failed stops the job.
                      At most 1024 bytes of the reason are kept.

        Raises Error (SYNCD_E_CHECKPOINT) if `checkpoint` is wanted before of a worker that left or
        finished: it saves, says so, and leaves again.

        The worker's `with` statement leaves as "failed", with its type and first line, if an exception
        ends it.
        """
        if kind not in _LEAVE_KINDS:
            raise error_of(
                Status.E_INVALID, f"kind={kind!r}; allowed: " + ", ".join(map(repr, _LEAVE_KINDS))
            )
        keep: list[Any] = []
        # Ones that UTF-8 does not have are shown as they are escaped.
        text = reason.replace("\0", "\\x00").encode("utf-8", "backslashreplace").decode()
        self._call(
            self._lib.syncd_leave_as,
            _LEAVE_KINDS.index(kind),
            c_text("reason", text, keep),
            timeout_ms_of("timeout", timeout),
        )

    def steps(self, iterations: int | None = None) -> Iterator[Step]:
        """begin() again and again, until the job ends or the next step is `iterations` or later.

        The loop's body pushes. Whoever leaves the loop early leaves the job by leave(), or by the
        end of the worker's `with` statement.
        """
        while True:
            step = self.begin()
            if step.stop or (iterations is not None and step.iteration >= iterations):
                return
            yield step

    def __iter__(self) -> Iterator[Step]:
        return self.steps()

    # ---- Decentralized jobs: begin, targets, push, collect, consumed

    def targets(self, iteration: int | None = None, timeout: float | None = None) -> list[int]:
        """The ranks to which this worker sends its update. Waits until the policy allows it.

        Raises Timeout, Unreachable, Unsupported (a parameter-server policy), WrongIteration,
        Stopped, Fenced, Cancelled, Closed, Error.
        """
        return list(self._listed(self._lib.syncd_worker_targets, "int32_t[]", iteration, timeout))

    def collect(self, iteration: int | None = None, timeout: float | None = None) -> list[Update]:
        """The updates that this worker is to reduce. Waits until the policy has enough of them.

        A step with `skip` first renews the parameters from collect(step.iteration - 1).
        Raises what targets() does.
        """
        which = self._which(iteration)
        raw = self._listed(self._lib.syncd_worker_collect, "syncd_update[]", which, timeout)
        self._collected = which
        return [Update(one.rank, one.iteration, one.weight) for one in raw]

    def consumed(self, iteration: int | None = None, timeout: float | None = None) -> None:
        """Tells that the updates of collect() have been read: their senders may overwrite them.

        iteration: None: the one collected last. timeout: 0 leaves the telling to the library.
        """
        if iteration is None:
            iteration = self._collected
        self._tell(self._lib.syncd_worker_consumed, self._which(iteration), timeout)

    # ---- Why it waits

    def explain(self, timeout: float | None = None) -> Explanation | None:
        """Why begin(), targets() or collect() is not answered yet: one in which another thread
        is blocked now, or one that has ended with Timeout. None: this worker waits for nothing.

        Any thread. Raises Timeout, Unreachable, Fenced, Cancelled, Closed.
        """
        lib = self._lib
        found = ffi.new("syncd_explanation **")
        error = ffi.new("syncd_error **")
        status = lib.syncd_worker_explain(
            self._handle, timeout_ms_of("timeout", timeout), found, error
        )
        if status:
            raise take_error(lib, status, error)
        given = ffi.gc(found[0], lib.syncd_explanation_free)
        iteration = lib.syncd_explanation_iteration(given)
        if iteration < 0:
            return None
        listed = ffi.new("syncd_waited_for **")
        count = lib.syncd_explanation_workers(given, listed)
        return Explanation(
            text_of(lib.syncd_explanation_text(given)),
            text_of(lib.syncd_explanation_rule(given)),
            iteration,
            lib.syncd_explanation_waiting_us(given) / 1e6,
            text_of(lib.syncd_explanation_ranks(given)),
            lib.syncd_explanation_waited_for_count(given),
            tuple(
                WaitedFor(
                    one.rank,
                    text_of(one.name),
                    text_of(one.host),
                    one.clock,
                    None if one.last_push_age_us < 0 else one.last_push_age_us / 1e6,
                    text_of(one.state),
                )
                for one in (listed[0][0:count] if count else ())
            ),
        )

    # ---- Agreed checkpoints. Any thread.

    def request_checkpoint(
        self, reason: str = "", leaving: bool = False, timeout: float | None = None
    ) -> int:
        """Asks for a checkpoint and returns its number. If one is open, it is meant; if this worker has
        come to that already, the next one.

        leaving: this worker is about to go. One that is open, or was complete less than 20 s ago, is
        meant; raises Error (SYNCD_E_BROKEN) while the job has lost a worker, and once the round of
        torchrun's that started this process is broken or over.
        Raises Error (SYNCD_E_STATE: join(checkpoints=True) was not said, or the job waits for its
        start), Invalid, Timeout, Unreachable, Unsupported, Stopped, Fenced, Cancelled, Closed.
        """
        keep: list[Any] = []
        number = ffi.new("uint64_t *")
        self._ask(
            self._lib.syncd_worker_request_checkpoint,
            c_text("reason", reason, keep),
            1 if leaving else 0,
            timeout_ms_of("timeout", timeout),
            number,
        )
        return int(number[0])

    def checkpointed(
        self,
        number: int,
        location: str | os.PathLike[str],
        shard: int = 0,
        shards: int = 1,
        timeout: float | None = None,
    ) -> None:
        """Says that this worker has saved shard `shard` of `shards` of this checkpoint at `location`.
        All workers must say the same `shards`; 1: one copy suffices. shards 0, with an empty location:
        it has nothing to save. At that step, or any number of steps later.

        Raises Error (SYNCD_E_STATE: the checkpoint was given up, or another answer was made), Invalid,
        Timeout, Unreachable, Unsupported, Stopped, Fenced, Cancelled, Closed.
        """
        keep: list[Any] = []
        self._ask(
            self._lib.syncd_worker_checkpointed,
            c_integer("number", number, 0, 2**64 - 1),
            c_integer("shard", shard, 0, 2**32 - 1),
            c_integer("shards", shards, 0, 2**32 - 1),
            c_text("location", location, keep),
            timeout_ms_of("timeout", timeout),
        )

    @property
    def checkpoint(self) -> int:
        """The checkpoint that this worker was told of last, by a step or by a leave() that raised Error
        (SYNCD_E_CHECKPOINT); 0: none."""
        return int(self._lib.syncd_worker_checkpoint(self._handle))

    def checkpoint_shard(self, number: int) -> tuple[int, int]:
        """Which shard of this checkpoint is this worker's, of how many, where each worker saves its own.
        The daemon numbers the workers that are to save, so all of them agree, even if others join or
        leave meanwhile.

        Raises Error (SYNCD_E_STATE: `checkpoint` is another one), Unsupported (an older daemon).
        """
        shards = ffi.new("uint32_t *")
        which = c_integer("number", number, 0, 2**64 - 1)
        shard = self._lib.syncd_worker_checkpoint_shard(self._handle, which, shards)
        if shards[0] > 0:
            return int(shard), int(shards[0])
        told = self.checkpoint
        if number == 0 or told != number:
            raise error_of(
                Status.E_STATE,
                f"checkpoint {number}: this worker was "
                + (f"told of checkpoint {told} last" if told else "told of none"),
            )
        raise error_of(
            Status.E_UNSUPPORTED,
            f"checkpoint {number}: this daemon does not say which shard is whose; update it",
        )

    def _leave_preempted(self, reason: str) -> None:
        keep: list[Any] = []
        self._ask(
            self._lib.syncd_leave_as,
            _LEAVE_KINDS.index("preempted"),
            c_text("reason", reason, keep),
            timeout_ms_of("timeout", 5.0),
        )

    def _ask(self, function: Callable[..., int], *arguments: Any) -> None:
        """A call that may be made beside another thread's."""
        error = ffi.new("syncd_error **")
        status = function(self._handle, *arguments, error)
        if status:
            self._await_end()
            raise take_error(self._lib, status, error)

    # ---- Who takes part

    def members(self, timeout: float | None = None) -> Members:
        """Who takes part in the job: everybody who has a rank, or had it last, this one included.

        Any thread. Ask when on_event says EventKind.MEMBERS rather than again and again.
        Raises Timeout, Unreachable, Unsupported (an older daemon), Fenced, Cancelled, Closed.
        """
        lib = self._lib
        found = ffi.new("syncd_members **")
        error = ffi.new("syncd_error **")
        status = lib.syncd_worker_members(
            self._handle, timeout_ms_of("timeout", timeout), found, error
        )
        if status:
            raise take_error(lib, status, error)
        given = ffi.gc(found[0], lib.syncd_members_free)
        listed = ffi.new("syncd_member **")
        count = lib.syncd_members_list(given, listed)
        return Members(
            lib.syncd_members_version(given),
            tuple(
                Member(
                    one.rank,
                    MemberState(one.state),
                    one.clock,
                    text_of(one.name),
                    text_of(one.host),
                    bytes_of(one.data, one.data_size),
                )
                for one in (listed[0][0:count] if count else ())
            ),
        )

    # ---- Views

    def view(self, number: int | None = None, timeout: float | None = None) -> View:
        """Who is in a view of this worker's: the latest that was granted, or the one before, by its
        number.

        Any thread. Raises Invalid (a view that is not kept), Unsupported (the job has no views), Error
        (SYNCD_E_STATE: none was granted yet), Timeout, Unreachable, Fenced, Cancelled, Closed.
        """
        lib = self._lib
        which = 0 if number is None else c_integer("number", number, 1, 2**64 - 1)
        found = ffi.new("syncd_view **")
        error = ffi.new("syncd_error **")
        status = lib.syncd_worker_view(
            self._handle, which, timeout_ms_of("timeout", timeout), found, error
        )
        if status:
            raise take_error(lib, status, error)
        given = ffi.gc(found[0], lib.syncd_view_free)
        listed = ffi.new("syncd_view_member **")
        count = lib.syncd_view_list(given, listed)
        return View(
            lib.syncd_view_number(given),
            text_of(lib.syncd_view_reason(given)),
            tuple(
                ViewMember(
                    one.rank,
                    text_of(one.name),
                    text_of(one.host),
                    bytes_of(one.data, one.data_size),
                )
                for one in (listed[0][0:count] if count else ())
            ),
        )

    def round(self) -> Round:
        """What has become of this worker's round, as far as the library was told. Asks nobody. Any
        thread."""
        found = ffi.new("syncd_round *")
        found.struct_size = ffi.sizeof("syncd_round")
        error = ffi.new("syncd_error **")
        status = self._lib.syncd_worker_round(self._handle, found, error)
        if status:
            raise take_error(self._lib, status, error)
        return Round(found.number, found.gone, found.room)

    # ---- Ends

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        try:
            if is_failure(error):
                self.leave(kind="failed", reason=first_line(error))
            else:
                self.leave()
        except Closed:
            pass  # it has left already, or its client was closed
        except Error as refused:
            if refused.code == Status.E_CHECKPOINT:
                self.leave()  # what was not saved is given up
            elif kind is None:
                raise  # else the exception on its way says more

    def __repr__(self) -> str:
        return f"<syncd.Worker {self._rank} of job {self._job!r} under {self._policy}>"

    # ---- Calls into the library

    def _which(self, iteration: int | None) -> int:
        if iteration is None:
            if self._granted is None:
                raise error_of(Status.E_STATE, "no iteration was granted yet; call begin() first")
            return self._granted
        return c_integer("iteration", iteration, 0, INT64_MAX)

    def _call(self, function: Callable[..., int], *arguments: Any) -> None:
        if not self._busy.acquire(blocking=False):
            raise error_of(
                Status.E_STATE, f"worker {self._rank} is in a call that another thread has made"
            )
        try:
            status = function(self._handle, *arguments, self._error)
            if status:
                self._await_end()
                raise take_error(self._lib, status, self._error)
        finally:
            self._busy.release()

    def _await_end(self) -> None:
        """A call fails because the process is being ended: its caller must not look as if it had."""
        if self._going not in (0, threading.get_ident()):
            threading.Event().wait()

    def _begin(self, timeout_ms: int) -> None:
        self._call(self._lib.syncd_begin, timeout_ms, self._step)

    def _tell(self, function: Callable[..., int], iteration: int, timeout: float | None) -> None:
        self._call(function, iteration, timeout_ms_of("timeout", timeout))

    def _listed(
        self, function: Callable[..., int], kind: str, iteration: int | None, timeout: float | None
    ) -> Any:
        which = self._which(iteration)
        room = max(self._world_size, 1)
        while True:
            found = ffi.new(kind, room)
            try:
                self._wait(
                    "timeout",
                    timeout,
                    lambda ms: self._call(function, which, ms, found, room, self._count),
                )
            except Error as error:
                if error.code != Status.E_BUFFER:
                    raise
                room = self._count[0]
                continue
            return found[0 : self._count[0]]

    def _say_wait(self) -> None:
        """Says for what a call waits that is still pending."""
        if self._on_wait is None:
            return
        try:
            why = self.explain(timeout=1.0)
        except Error as error:
            text = error.message
        else:
            if why is None:
                return  # it was answered meanwhile
            text = str(why)
            if why.rule == "start":
                world = max(self._world_size, why.count)
                text = f"waiting for {why.count} of {world} workers: {why.ranks} ({text})"
        self._on_wait(f"job {self._job!r}, worker {self._rank}: {text}")

    def _wait(self, what: str, seconds: float | None, call: Callable[[int], None]) -> None:
        """Makes a call that may wait for long in pieces: in the main thread in short ones, elsewhere so
        that it can be said for what it waits."""
        timeout_ms = timeout_ms_of(what, seconds)
        in_main = threading.current_thread() is threading.main_thread()
        slice_s, slice_s_max = _SLICE_S_FIRST, _SLICE_S_MAX
        if not in_main:
            slice_s = slice_s_max = math.inf if self._on_wait is None else _SAY_S
        total_s = self._client._begin_timeout_s if seconds is None else seconds
        if total_s <= slice_s:
            return call(timeout_ms)
        end = time.monotonic() + total_s
        say_at = time.monotonic() + _SAY_S
        while True:
            left_s = end - time.monotonic()
            try:
                return call(timeout_ms_of(what, max(0.0, min(slice_s, left_s))))
            except Timeout as error:
                if "(join_timeout): " in error.message:
                    raise
                if left_s <= slice_s:
                    # The library knows of the last piece alone.
                    after = f" after {total_s:.1f} s: "
                    text = re.sub(r" after [0-9.]+ m?s: ", after, error.message, count=1)
                    raise Timeout(
                        text, error.code, error.name, error.retriable, error.fatal
                    ) from None
            slice_s = min(2 * slice_s, slice_s_max)
            if time.monotonic() >= say_at:
                say_at = time.monotonic() + _SAY_S
                self._say_wait()
