"""Where this process is: what a worker answers to `syncctl inspect`."""

from __future__ import annotations

import json
import sys
import threading
import traceback

_FRAMES_MAX = 30
_ENTRIES_MAX = 8  # of torch's flight recorder, the latest


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
    """Of collectives: how far each process group is, and the last ones; empty: there is none."""
    c10d = sys.modules.get("torch._C._distributed_c10d")
    for name in ("_dump_fr_trace_json", "_dump_nccl_trace_json"):
        dump = getattr(c10d, name, None)
        if dump is None:
            continue
        try:
            raw = dump(includeCollectives=True, onlyActive=False)
        except Exception as error:  # no process group, or another signature: the stacks say enough
            return f"({name}: {type(error).__name__}: {error})"
        return _summary(raw.decode(errors="replace") if isinstance(raw, bytes) else str(raw))
    return ""


def _summary(text: str) -> str:
    """Lines for people, of what torch's flight recorder dumps as JSON."""
    try:
        dumped = json.loads(text)
        entries = dumped.get("entries", [])
        lines = [
            f"  process group {group}: last enqueued {status.get('last_enqueued_collective')}, "
            f"completed {status.get('last_completed_collective')}"
            for group, status in dumped.get("pg_status", {}).items()
        ]
        for entry in entries[-_ENTRIES_MAX:]:
            number = entry.get("collective_seq_id", entry.get("seq_id"))
            lines.append(f"  {entry.get('profiling_name')} {number}: {entry.get('state')}")
    except (ValueError, AttributeError, TypeError) as error:
        return f"  (it cannot be read: {type(error).__name__}: {error})"
    return "\n".join(lines) if entries else ""
