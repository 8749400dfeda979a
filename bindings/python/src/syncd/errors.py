"""What a failed call raises."""

from __future__ import annotations

import asyncio
import enum
import re
from typing import Any

from ._cdef import CDEF, CDEF_SERVER
from ._library import ffi


class Status(enum.IntEnum):
    """SYNCD_OK and the SYNCD_E_... codes of <syncd/client.h>, without the prefix."""

    OK = 0
    E_INVALID = -1
    E_NOMEM = -2
    E_TIMEOUT = -3
    E_UNREACHABLE = -4
    E_PROTOCOL = -5
    E_AUTH = -6
    E_UNKNOWN_JOB = -7
    E_POLICY_MISMATCH = -8
    E_WRONG_ITERATION = -9
    E_FENCED = -10
    E_RANK_TAKEN = -11
    E_LIMIT = -12
    E_STORE = -13
    E_CANCELLED = -14
    E_CLOSED = -15
    E_FORKED = -16
    E_UNSUPPORTED = -17
    E_STOPPED = -18
    E_STATE = -19
    E_INTERNAL = -20
    E_SHUTDOWN = -21
    E_UNKNOWN_WORKER = -22
    E_JOB_EXISTS = -23
    E_BUFFER = -24
    E_LISTEN = -25
    E_NO_UPDATE = -26
    E_OVERWRITTEN = -27
    E_TORN = -28
    E_BROKEN = -29
    E_CHECKPOINT = -30


class Error(Exception):
    """A call of the library failed.

    code       the number of <syncd/client.h>, such as -3 (Status.E_TIMEOUT)
    name       its name, such as "SYNCD_E_TIMEOUT"
    message    what happened, with numbers and names
    retriable  the same call may succeed when it is simply made again
    fatal      this worker can never succeed any more: join anew, or give up
    """

    def __init__(
        self,
        message: str,
        code: int = Status.E_INTERNAL,
        name: str | None = None,
        retriable: bool = False,
        fatal: bool = False,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = int(code)
        self.name = name if name is not None else "SYNCD_" + Status(code).name
        self.retriable = retriable
        self.fatal = fatal

    @property
    def missing(self) -> str:
        """Who is waited for, as the message says it ("worker 7 (node-b, clock 8, ...)"), or ""."""
        found = re.search(r"waiting for (.*)", self.message, re.DOTALL)
        return found.group(1) if found else ""

    def __str__(self) -> str:
        return f"{self.name}: {self.message}"

    def __reduce__(self) -> Any:  # so that it reaches the parent of a multiprocessing worker whole
        return type(self), (self.message, self.code, self.name, self.retriable, self.fatal)


class Timeout(Error, TimeoutError):
    """Not granted in time. The request stays standing: the same call waits on."""


class Unreachable(Error, ConnectionError):
    """No daemon answered at any endpoint within the timeout."""


class Invalid(Error, ValueError):
    """An argument is wrong; the message names it and what is allowed."""


class Fenced(Error):
    """This worker was declared lost, or another has taken its place."""


class Stopped(Error):
    """The job was stopped or has finished."""


class Closed(Error):
    """The client is closed, or the worker has left."""


class Cancelled(Closed):
    """The call was under way when the client was closed."""


class Unsupported(Error):
    """The daemon, or the job's policy, does not offer this."""


class WrongIteration(Error):
    """The iteration is not the one that is due; the message names both."""


_CLASSES: dict[int, type[Error]] = {
    Status.E_INVALID: Invalid,
    Status.E_TIMEOUT: Timeout,
    Status.E_UNREACHABLE: Unreachable,
    Status.E_WRONG_ITERATION: WrongIteration,
    Status.E_FENCED: Fenced,
    Status.E_CANCELLED: Cancelled,
    Status.E_CLOSED: Closed,
    Status.E_UNSUPPORTED: Unsupported,
    Status.E_STOPPED: Stopped,
}


# ---- What C calls otherwise

_FIELDS = {
    "addresses": "address",
    "client_name": "name",
    "data_size": "len(data)",
    "launch_number": "launch[1]",
    "unix_path": "unix",
}
_FUNCTIONS = {
    "syncd_client_open": "connect",
    "syncd_client_close": "close",
    "syncd_server_start": "serve",
    "syncd_leave_as": "leave",
    "syncd_latest_checkpoint_part": "latest_checkpoint",
    "syncd_worker_set_data": "set_data",
    "syncd_worker_arrive": "arrive",
    "syncd_worker_descriptor": "fileno",
}
_DECLARED = frozenset(re.findall(r"\b(syncd_[a-z_]+)\(", CDEF + CDEF_SERVER))
# Text in quotes is the caller's. A field with " is " and a value becomes an argument with it.
_OF_C = re.compile(
    r"(?<![^ =(])'[^']*'"
    r"|\bsyncd_[a-z]+_options\.(?P<field>[a-z_]+)(?P<value> is (?=['0-9-]))?"
    r"|\b(?P<option>[a-z]+_timeout)_ms\b"
    r"|\b(?P<size>data_size is )"
    r"|\b(?P<function>syncd_[a-z_]+)(?:\(\))?"
    r"|\b(?P<null>NULL)\b"
)


def _in_python(found: re.Match[str]) -> str:
    if field := found["field"]:
        name = _FIELDS.get(field, field.removesuffix("_ms"))
        return name + ("=" if found["value"] else "")
    if found["option"]:
        return found["option"]
    if found["size"]:
        return "len(data)="
    if found["null"]:
        return "None"
    function = found["function"]
    if function not in _DECLARED:
        return found[0]
    plain = function.removeprefix("syncd_").removeprefix("worker_").removeprefix("server_")
    return _FUNCTIONS.get(function, plain) + ("()" if found[0].endswith("()") else "")


def pythonic(message: str) -> str:
    """A message of the C library with this package's names: `syncd_join_options.job is 'a b'` is
    `job='a b'`."""
    return _OF_C.sub(_in_python, message)


def error_of(code: int, message: str) -> Error:
    """An error that this package, not the library, has found."""
    return _CLASSES.get(code, Error)(message, code)


def take_error(lib: Any, status: int, holder: Any) -> Error:
    """The exception for a failed call; frees the error object that `holder` (a pointer to its
    pointer) received, and clears it for the next call."""
    error = holder[0]
    holder[0] = ffi.NULL
    try:
        name = ffi.string(lib.syncd_strerror(status)).decode()
        message = ffi.string(lib.syncd_error_message(error)).decode(errors="replace")
        return _CLASSES.get(status, Error)(
            pythonic(message) or name,
            status,
            name,
            bool(lib.syncd_error_is_retriable(error)),
            bool(lib.syncd_error_is_fatal(error)),
        )
    finally:
        lib.syncd_error_free(error)


def is_failure(error: BaseException | None) -> bool:
    """Whether an exception that ends a worker's loop says that its work is not done."""
    if isinstance(error, SystemExit):
        return error.code not in (None, 0)
    return error is not None and not isinstance(error, (GeneratorExit, asyncio.CancelledError))


def first_line(error: BaseException | None) -> str:
    """The type and first line of an exception."""
    kind = type(error).__name__
    try:
        text = str(error).strip().splitlines()[:1]
    except Exception:  # its __str__ is the user's
        text = []
    return f"{kind}: {text[0]}" if text else kind
