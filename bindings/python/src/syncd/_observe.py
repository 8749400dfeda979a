"""Observation: says who makes a job hang. It never waits in the caller's thread, and no failure of
it ends the training."""

from __future__ import annotations

import atexit
import contextlib
import logging
import math
import queue
import threading
import time
from typing import Any, Callable, Iterator, Literal, Sequence

from ._values import Event, EventKind
from .client import Client, Worker, connect
from .errors import Error, Status

_log = logging.getLogger("syncd")
_CLOSE_TIMEOUT_S = 2.0
_RANK_TIMEOUT_S = 15.0
_NOTES_MAX = 100_000  # some 10 MB; a daemon that is away is caught up with


class Observer:
    """One worker of a job under observation. Made by observe() or syncd.torch.ddp().

    A thread of its own tells the daemon what the training's threads do; they only leave a note.
    Observation ends with a warning when 100,000 notes wait for a daemon that is away. Any thread.
    """

    def __init__(
        self, client: Client, worker: Worker, hear: _Ear, *, continuous: bool = False
    ) -> None:
        self._client = client
        self._worker = worker
        self._hear = hear
        self._continuous = continuous
        self._notes: queue.SimpleQueue[tuple[str, Any] | None] = queue.SimpleQueue()
        self._closed = False
        self._failed = False
        self._thread = threading.Thread(target=self._tell, name="syncd-observer", daemon=True)
        if continuous:
            self._note("begin")
        self._thread.start()
        atexit.register(self.close)

    @property
    def rank(self) -> int:
        return self._worker.rank

    @property
    def last_hang(self) -> str | None:
        """The latest "waiting for worker 3 (node-b), in iteration 20 for 31.0 s, still computing";
        None: there was none."""
        return self._hear.last

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """Around one iteration. One that ends with an exception is not pushed: the others wait."""
        self._note("begin")
        yield
        self._note("end")

    def computed(self, ready: Any = None) -> None:
        """This worker has computed its iteration; what follows until the end of step() is exchange
        with the others.

        ready: an object with synchronize(), such as a torch.cuda.Event, when that is so only later.
        """
        self._note("computed", ready)

    def end(self, ready: Any = None) -> None:
        """The iteration is over, and the next one begins: for loops without step()."""
        self._note("end", ready)

    def close(self) -> None:
        """Leaves the job and closes the connection. Also at the end of the interpreter."""
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self.close)
        self._notes.put(None)
        self._thread.join(_CLOSE_TIMEOUT_S)
        if not self._thread.is_alive():
            with contextlib.suppress(Error):
                self._worker.leave(timeout=_CLOSE_TIMEOUT_S)
        self._client.close()

    def __enter__(self) -> Observer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _note(self, what: str, ready: Any = None) -> None:
        if self._failed or self._closed:
            return
        if self._notes.qsize() < _NOTES_MAX:
            self._notes.put((what, ready))
            return
        # Without some of its iterations this worker would seem to be behind the others for good.
        self._failed = True
        _log.warning(
            "observation of job %s ends: the daemon does not answer, and %d notes wait for it",
            self._worker.job,
            _NOTES_MAX,
        )

    def _tell(self) -> None:
        try:
            while (note := self._notes.get()) is not None and not self._failed:
                what, ready = note
                if ready is not None:
                    ready.synchronize()
                if not self._tell_one(what):
                    return
        except Exception as error:
            if not self._closed and not self._failed:
                _log.warning("observation of job %s ends: %s", self._worker.job, error)
            self._failed = True
        if self._failed and not self._closed:  # so that nobody takes it for one that hangs
            with contextlib.suppress(Error):
                self._worker.leave(timeout=_CLOSE_TIMEOUT_S)

    def _tell_one(self, what: str) -> bool:
        """False: the job was stopped."""
        if what == "computed":
            self._worker.mark()
            return True
        if what == "end":
            self._until_told(lambda: self._worker.push(timeout=math.inf))
            if not self._continuous:
                return True
        return not self._until_told(lambda: self._worker.begin(timeout=math.inf)).stop

    def _until_told(self, call: Callable[[], Any]) -> Any:
        """A daemon that is away comes back, or the training does without."""
        while True:
            try:
                return call()
            except Error as error:
                if self._closed or self._failed or not error.retriable:
                    raise


class _Ear:
    """Takes the events of an observer's worker."""

    def __init__(self, on_hang: Callable[[Event], object] | None) -> None:
        self.last: str | None = None
        self._on_hang = on_hang

    def __call__(self, event: Event) -> None:
        if event.kind != EventKind.HANG:
            return
        self.last = event.text
        if self._on_hang is not None:
            self._on_hang(event)
        else:
            _log.warning("syncd: hang: %s", event.text)


def observe(
    job: str | None = None,
    *,
    hang_after: float | Literal["auto"] = "auto",
    on_hang: Callable[[Event], object] | None = None,
    rank: int | None = None,
    world_size: int | None = None,
    name: str | None = None,
    address: str | Sequence[str] | None = None,
    policy: str | None = "asp",
    continuous: bool = False,
) -> Observer:
    """Puts a training under observation: when a worker hangs, all are told which one it is.

        obs = syncd.observe("resnet", hang_after=30)
        for batch in batches:
            with obs.step():
                loss = forward_and_backward(batch)
                obs.computed()
                all_reduce(gradients)

    job         as for join(); a job that this call makes has the policy asp, which never holds a worker
    hang_after  seconds; "auto": the daemon chooses by the workers' own iterations
    on_hang     is called with an Event whose text says who is at fault; None: the logger "syncd" warns
    rank, world_size, name, address, policy  as for join() and connect(). policy=None: the job's
    continuous  an iteration begins when the one before ends: for end() in the place of step()

    Raises what connect() and join() do. Later failures end the observation with a warning.
    """
    ear = _Ear(on_hang)
    client = connect(address)
    until = time.monotonic() + _RANK_TIMEOUT_S
    try:
        while True:
            try:
                worker = client.join(
                    job,
                    policy,
                    rank=rank,
                    world_size=world_size,
                    name=name,
                    hang_after=hang_after,
                    on_event=ear,
                )
                return Observer(client, worker, ear, continuous=continuous)
            except Error as error:
                # Of a process that has died just now, whose place is kept for some seconds.
                if error.code != Status.E_RANK_TAKEN or time.monotonic() > until:
                    raise
                time.sleep(0.5)
    except BaseException:
        client.close()
        raise
