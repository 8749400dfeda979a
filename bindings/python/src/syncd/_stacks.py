"""Where this process is: what a worker answers to `syncctl inspect`."""

from __future__ import annotations

import sys
import threading
import traceback

_FRAMES_MAX = 30
_RECORDER_CHARACTERS_MAX = 4000


def stacks() -> str:
    """The stacks of all threads but the calling one, the main thread's first, and torch's flight
    recorder where the loaded torch has one with entries."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    main = threading.main_thread().ident
    frames = sys._current_frames()
    frames.pop(threading.get_ident(), None)
    parts = []
    for ident in sorted(frames, key=lambda one: (one != main, one)):
        name = names.get(ident, "not Python's")
        lines = traceback.format_stack(frames[ident])
        left_out = len(lines) - _FRAMES_MAX
        if left_out > 0:
            lines = [f"  ... {left_out} outer frames\n", *lines[left_out:]]
        parts.append(f"Thread {name} (most recent call last):\n" + "".join(lines))
    recorder = _flight_recorder()
    if recorder:
        parts.append("Flight recorder of torch:\n" + recorder + "\n")
    return "\n".join(parts)


def _flight_recorder() -> str:
    """Of NCCL collectives that are not over, as JSON; empty: there is none."""
    c10d = sys.modules.get("torch._C._distributed_c10d")
    for name in ("_dump_fr_trace_json", "_dump_nccl_trace_json"):
        dump = getattr(c10d, name, None)
        if dump is None:
            continue
        try:
            raw = dump(includeCollectives=True, onlyActive=True)
        except Exception as error:  # no process group, or another signature: the stacks say enough
            return f"({name}: {type(error).__name__}: {error})"
        text = raw.decode(errors="replace") if isinstance(raw, bytes) else str(raw)
        return text[-_RECORDER_CHARACTERS_MAX:] if '"entries"' in text else ""
    return ""
