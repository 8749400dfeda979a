"""A progress bar: rate, share of time spent waiting, and who is waited for."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import Any, Iterator

from ..client import Worker

tqdm: Any
try:
    import tqdm
except ImportError:
    tqdm = None


class Progress:
    """What a loop tells of itself. Shows nothing."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._waited = 0.0

    def waited(self, seconds: float) -> None:
        """Between two iterations."""
        self._waited += seconds

    def waiting_share(self) -> float:
        """Of the time since the first iteration, from 0 to 1."""
        passed = time.monotonic() - self._begun
        return min(1.0, self._waited / passed) if passed > 0 else 0.0

    def stepped(self) -> None: ...

    def waits_for(self, whom: str) -> None: ...


class _Bar(Progress):
    def __init__(self, bar: Any) -> None:
        super().__init__()
        self._bar = bar

    def stepped(self) -> None:
        self._bar.set_postfix_str(f"waiting {self.waiting_share():.0%}", refresh=False)
        self._bar.update()

    def waits_for(self, whom: str) -> None:
        self._bar.set_postfix_str(whom)


@contextlib.contextmanager
def progress_of(wanted: bool | None, worker: Worker) -> Iterator[Progress]:
    """A bar of tqdm's if it is installed and wanted. None: for worker 0, if standard error is a terminal."""
    if wanted is None:
        wanted = worker.rank == 0 and sys.stderr.isatty()
    if not wanted or tqdm is None:
        yield Progress()
        return
    with tqdm.tqdm(desc=worker.job, unit=" it", dynamic_ncols=True) as bar:
        progress = _Bar(bar)
        previous = worker._on_wait
        worker._on_wait = progress.waits_for
        try:
            yield progress
        finally:
            worker._on_wait = previous
