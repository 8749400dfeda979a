"""serve(): the daemon inside this process, over <syncd/server.h>."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import threading
import weakref
from types import TracebackType
from typing import Any, Literal, Sequence

from ._arguments import c_text, timeout_ms_of
from ._callbacks import close_listening
from ._library import ffi, load_server
from .errors import Error, Status, error_of, take_error

_log = logging.getLogger("syncd")
_LEVELS = ("debug", "info", "warn", "error")
_LOG_STDERR = 1

_running: weakref.WeakSet[Server] = weakref.WeakSet()


@atexit.register
def _stop_running() -> None:
    """A server must have ended before the process does."""
    servers = list(_running)
    if servers:
        close_listening()  # so that clients do not wait for a daemon that will not come back
    for server in servers:
        if server._pid == os.getpid():
            try:
                server.stop()
            except Error as error:
                _log.warning("%r at the end of the process: %s", server, error)


class Server:
    """A daemon in this process, made by serve(). Use it in a `with` statement. Any thread.

    It has threads of its own, which never take the interpreter's lock: a training loop that holds it
    does not delay other workers. A child of fork() has no server.
    """

    def __init__(self, lib: Any, handle: Any) -> None:
        self._lib = lib
        self._handle = handle
        self._pid = os.getpid()
        self._lock = threading.Lock()
        found: list[str] = []
        while (address := lib.syncd_server_address(handle, len(found))) != ffi.NULL:
            found.append(ffi.string(address).decode())
        self.addresses: tuple[str, ...] = tuple(found)
        """Where it listens: the Unix socket first, if there is one, then each TCP address."""
        _running.add(self)

    @property
    def address(self) -> str:
        """The first of `addresses`, as connect() and SYNCD_ADDR take it: "tcp:127.0.0.1:40117"."""
        return self.addresses[0]

    def stop(self, timeout: float | None = None) -> None:
        """Stops it in good order: what was pushed is stored, clients are told, sockets closed. Close
        the clients first, or they wait for a daemon at this address for reconnect_timeout.

        timeout: seconds for all of it; None: timeouts.shutdown_timeout (10). Does nothing if it was
        stopped already. Raises Error (SYNCD_E_STORE: not everything could be written; it has
        stopped all the same) and Invalid.
        """
        timeout_ms = timeout_ms_of("timeout", timeout)
        if self._pid != os.getpid():
            raise error_of(Status.E_FORKED, "stop: this process was forked from the server's")
        with self._lock:
            handle, self._handle = self._handle, None
        if handle is None:
            return
        error = ffi.new("syncd_error **")
        status = self._lib.syncd_server_stop(handle, timeout_ms, error)
        if status == Status.E_INVALID:
            self._handle = handle
        else:
            _running.discard(self)
        if status:
            raise take_error(self._lib, status, error)

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        if self._pid != os.getpid():
            return
        with contextlib.suppress(*[Error] if kind else []):  # the exception on its way says more
            self.stop()

    def __repr__(self) -> str:
        state = ", stopped" if self._handle is None else ""
        return f"<syncd.Server at {', '.join(self.addresses)}{state}>"


def serve(
    store: str | os.PathLike[str] | None = None,
    *,
    tcp: str | Sequence[str] | None = None,
    unix: str | os.PathLike[str] | None = None,
    config: str | None = None,
    log: bool = False,
    log_level: Literal["debug", "info", "warn", "error"] | None = None,
) -> Server:
    """Starts a daemon in this process and returns when clients can connect. It ends with the process.

    store      a directory for the history, whose parent exists; None: in memory
    tcp        "HOST:PORT", or several; port 0 takes any free one. None: "127.0.0.1:0"
    unix       the path of a Unix socket; None: none
    config     further settings, as the text of a syncd.toml; the arguments above win
    log        write the log to standard error
    log_level  the least level that is logged; None: "info"

    The environment's SYNCD_... variables are not read. Raises Invalid (one line for each mistake),
    Error (SYNCD_E_STORE, SYNCD_E_LISTEN, SYNCD_E_LIMIT) and LibraryNotFound.
    """
    keep: list[Any] = []
    if tcp is not None and not isinstance(tcp, str):
        tcp = ",".join(tcp)
    if log_level is not None and log_level not in _LEVELS:
        allowed = ", ".join(map(repr, _LEVELS))
        raise error_of(Status.E_INVALID, f"log_level={log_level!r}; allowed: {allowed} or None")
    options = ffi.new("syncd_server_options *")
    options.struct_size = ffi.sizeof("syncd_server_options")
    options.config = c_text("config", config, keep)
    options.tcp = c_text("tcp", tcp, keep)
    options.unix_path = c_text("unix", unix, keep)
    options.store = c_text("store", store, keep)
    options.log_level = 0 if log_level is None else _LEVELS.index(log_level) + 1
    options.flags = _LOG_STDERR if log else 0
    lib = load_server()
    made = ffi.new("syncd_server **")
    error = ffi.new("syncd_error **")
    status = lib.syncd_server_start(options, made, error)
    if status:
        raise take_error(lib, status, error)
    return Server(lib, made[0])
