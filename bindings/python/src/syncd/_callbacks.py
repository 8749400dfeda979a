"""Python's functions that the library calls, on threads of its own. All of that must be over before the
interpreter ends."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any, Callable

from ._arguments import text_of
from ._library import ffi
from ._values import Event, EventKind

if TYPE_CHECKING:
    from .client import Client

_EVENT_KINDS = frozenset(EventKind)


def _about_others(raw: Any) -> tuple[Any, ...]:
    """What an event of kind STRAGGLER or HANG says besides."""
    if raw.kind == EventKind.HANG:
        return None if raw.rank < 0 else raw.rank, False, None, None, text_of(raw.text)
    if raw.kind != EventKind.STRAGGLER:
        return ()
    return raw.rank, raw.recovered != 0, raw.factor, raw.since_us / 1e6, text_of(raw.text)


# Clients whose thread may call into Python: that must be over before the interpreter ends.
listeners: weakref.WeakSet[Client] = weakref.WeakSet()


# The threads that are in a call of on_event. A client's own thread is among them when its callback
# has closed the client, which then cannot wait for it.
_telling: dict[int, None] = {}
os.register_at_fork(after_in_child=_telling.clear)


@atexit.register
def close_listening() -> None:
    for client in list(listeners):
        client.close()
    while _telling.keys() - {threading.get_ident()}:
        time.sleep(0.001)


def event_callback(client: weakref.ref[Client], on_event: Callable[[Event], object]) -> Any:
    """`on_event` as the library calls it. What it raises goes where exceptions of threads go."""

    def take(raw: Any, _: Any) -> None:
        if raw.kind not in _EVENT_KINDS:
            return  # of a newer library
        # Events of the client's other workers may come after the one whose callback closed it.
        listening = client()
        if listening is None or listening.closed:
            return
        del listening  # on_event may drop the last reference
        thread = threading.get_ident()
        _telling[thread] = None
        try:
            on_event(
                Event(
                    EventKind(raw.kind),
                    None if raw.iteration < 0 else raw.iteration,
                    None if raw.wait_us < 0 else raw.wait_us / 1e6,
                    None if raw.version == 0 else raw.version,
                    *_about_others(raw),
                )
            )
        except BaseException:  # nobody is there who could catch it
            threading.excepthook(
                threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread()))
            )
        finally:
            # As the last thing, and by a statement that lets no other thread run after it.
            if thread in _telling:
                del _telling[thread]

    return ffi.callback("syncd_event_callback", take)


def inspect_callback(on_inspect: Callable[[], str]) -> Any:
    """`on_inspect` as the library calls it. What it raises is the answer."""

    def take(text: Any, capacity: int, _: Any) -> int:
        thread = threading.get_ident()
        _telling[thread] = None
        try:
            try:
                said = on_inspect()
            except BaseException as error:
                said = f"on_inspect raised {type(error).__name__}: {error}"
            data = said.encode(errors="replace")[:capacity]
            ffi.memmove(text, data, len(data))
            return len(data)
        finally:
            if thread in _telling:
                del _telling[thread]

    return ffi.callback("syncd_inspect_callback", take, error=0)
