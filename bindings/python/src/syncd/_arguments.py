"""Python's arguments as the library takes them, and its texts and bytes as Python has them."""

from __future__ import annotations

import math
import os
from typing import Any, Literal

from ._library import ffi
from .errors import Status, error_of

_WAIT_FOREVER = -1
_TIMEOUT_DEFAULT = -2
INT64_MAX = 2**63 - 1
_RESUMES = ("auto", "new", "continue")


def hang_after_ms_of(seconds: float | Literal["auto"] | None) -> int:
    if seconds is None:
        return 0
    if seconds == "auto":
        return -1
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        kind = type(seconds).__name__
        raise TypeError(f'hang_after is of type {kind}; allowed: a number of seconds, "auto" or None')
    if not 0 < seconds <= 2_592_000:
        raise error_of(
            Status.E_INVALID,
            f'hang_after={seconds!r}; allowed: more than 0 and at most 2592000 s (30 days), "auto" '
            "or None",
        )
    return math.ceil(seconds * 1000)


def timeout_ms_of(what: str, seconds: float | None) -> int:
    """Milliseconds for the library, rounded up. None: the default; math.inf: for ever."""
    if seconds is None:
        return _TIMEOUT_DEFAULT
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        kind = type(seconds).__name__
        raise TypeError(f"{what} is of type {kind}; allowed: a number of seconds, or None")
    if not seconds >= 0:
        raise error_of(
            Status.E_INVALID,
            f"{what}={seconds!r}; allowed: seconds from 0, math.inf to wait for ever, or None for "
            "the default",
        )
    if seconds == math.inf:
        return _WAIT_FOREVER
    return min(math.ceil(seconds * 1000), INT64_MAX)


def option_ms_of(what: str, seconds: float | None) -> int:
    if seconds == 0:
        raise error_of(
            Status.E_INVALID,
            f"{what}=0; allowed: seconds above 0, math.inf to wait for ever, or None for "
            "the default",
        )
    return 0 if seconds is None else timeout_ms_of(what, seconds)


def c_text(what: str, value: str | os.PathLike[str] | None, keep: list[Any]) -> Any:
    """A C string that lives as long as `keep` does."""
    if value is None:
        return ffi.NULL
    if not isinstance(value, (str, os.PathLike)):
        raise TypeError(f"{what} is of type {type(value).__name__}; allowed: str or None")
    encoded = os.fsencode(value)
    if b"\0" in encoded:
        raise error_of(Status.E_INVALID, f"{what} holds a NUL character; allowed: text without one")
    keep.append(ffi.new("char[]", encoded))
    return keep[-1]


def c_integer(what: str, value: int, low: int, high: int) -> int:
    """An integer that the C type takes; NumPy's and PyTorch's integers are taken too."""
    try:
        number = value.__index__()
    except AttributeError:
        kind = type(value).__name__
        raise TypeError(f"{what} is of type {kind}; allowed: an integer") from None
    if not low <= number <= high:
        raise error_of(Status.E_INVALID, f"{what}={number}; allowed: {low} to {high}")
    return number


def take_launch(
    options: Any, launch: str | tuple[str, int] | None, keep: list[Any]
) -> None:
    if launch is None:
        return
    name, number = (launch, 0) if isinstance(launch, str) else launch
    options.launch = c_text("launch", name, keep)
    options.launch_number = c_integer("the launch's number", number, 0, 2**64 - 1)


def take_resume(options: Any, resume: str, resume_at: int | None) -> None:
    if resume not in _RESUMES:
        raise error_of(
            Status.E_INVALID, f"resume={resume!r}; allowed: " + ", ".join(map(repr, _RESUMES))
        )
    if resume_at is None:
        if resume == "continue":
            raise error_of(
                Status.E_INVALID, 'resume="continue" without resume_at; allowed: an iteration from 0'
            )
    elif resume == "new":
        raise error_of(Status.E_INVALID, f'resume="new" with resume_at={resume_at}; allowed: one of them')
    else:
        resume = "continue"
        options.resume_at = c_integer("resume_at", resume_at, 0, INT64_MAX)
    options.resume = _RESUMES.index(resume)


def bytes_of(data: Any, size: int) -> bytes:
    return bytes(ffi.buffer(data, size)) if size else b""


def text_of(characters: Any) -> str:
    text: str = ffi.string(characters).decode(errors="replace")
    return text
