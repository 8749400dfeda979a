"""The collectives of one view, on a helper thread that can be abandoned."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
import time
from datetime import timedelta
from typing import Any, Callable, NamedTuple

import torch
import torch.distributed as dist

from . import _compat
from ._shared_sum import Segment, SharedSum

BUCKET_BYTES = 25 << 20
_STORE_TIMEOUT_S = 30.0
_CONNECT_TIMEOUT_S = 5.0
_POLL_S = 0.005
_PAUSE_FIRST_S = 20e-6
_PAUSE_MAX_S = 1e-3
_ASK_S = 0.25


class Skipped(Exception):
    """An averaging that has failed or was abandoned; str() says why."""


class Place(NamedTuple):
    """This worker's place in a view."""

    view: str
    """A name that no other view has."""
    number: int
    """Likewise; later views have higher ones."""
    rank: int
    addresses: tuple[str, ...]
    """Of the members' stores."""

    @property
    def size(self) -> int:
        return len(self.addresses)


class ViewGroup:
    """A process group of a view's members. torch.distributed does not know it.

    Connects to the store of the view's rank 0, and waits there for all members. Raises RuntimeError where
    that, or a collective, fails.

    segment     where this worker's tensors lie, if others may read them
    shared_sum  adds them up, if all members are on one machine; None: all_reduce() does
    """

    def __init__(
        self,
        place: Place,
        backend: str,
        timeout_s: float,
        check: Callable[[], None],
        segment: Segment | None = None,
    ) -> None:
        self.place = place
        self.backend = backend
        self.store = connect_store(place.addresses[0])
        self.store.set(f"{place.view}/segment/{place.rank}", segment.card if segment else "")
        # torch would wait for a dead member until a timeout, where check() cannot end it.
        self.store.add(f"{place.view}/here", 1)
        await_whole(self.store, place.view, "here", place.size, check)
        self.shared_sum = self._share(segment, check)
        prefixed = dist.PrefixStore(place.view, self.store)
        if backend == "nccl":
            self._group = _compat.nccl_group(prefixed, place.rank, place.size, timeout_s)
        else:
            host = place.addresses[place.rank].rpartition(":")[0]
            self._group = _compat.gloo_group(prefixed, place.rank, place.size, timeout_s, host)

    def _share(self, segment: Segment | None, check: Callable[[], None]) -> SharedSum | None:
        """Only if all members can: one that cannot says so to all."""
        store, place, found = self.store, self.place, None
        names = [f"{place.view}/segment/{rank}" for rank in range(place.size)]
        with contextlib.suppress(OSError):
            cards = [store.get(name).decode() for name in names]
            if segment is not None and all(cards):
                found = SharedSum(segment, place.rank, cards)
        if found is None:
            store.add(f"{place.view}/unshared", 1)
        store.add(f"{place.view}/decided", 1)
        await_whole(store, place.view, "decided", place.size, check)
        return found if store.add(f"{place.view}/unshared", 0) == 0 else None

    def all_reduce(self, tensor: torch.Tensor) -> Any:
        """Starts a sum in place; returns what to wait() for."""
        return self._group.allreduce([tensor], dist.AllreduceOptions())

    def broadcast(self, tensor: torch.Tensor, source: int) -> Any:
        """Likewise."""
        options = dist.BroadcastOptions()
        options.rootRank, options.rootTensor = source, 0
        return self._group.broadcast([tensor], options)

    def say_failed(self) -> None:
        """To those that have the same memory; the others look into the store."""
        if self.shared_sum is not None:
            self.shared_sum.say_failed(self.place.number)

    # ---- Who has this view's average whole

    def say_whole(self, place: Place) -> None:
        """Of the view of `place`: when it is said late, the group may be in the next one already."""
        if self.shared_sum is not None:
            self.shared_sum.say_whole(place.number)
        else:
            self.store.add(f"{place.view}/whole", 1)

    def is_whole(self) -> bool:
        """Whether all have said so, also those that have ended since."""
        if self.shared_sum is not None:
            return self.shared_sum.is_whole(self.place.number)
        return bool(self.store.add(f"{self.place.view}/whole", 0) >= self.place.size)

    def await_whole(self, check: Callable[[], None]) -> None:
        if self.shared_sum is not None:
            self.shared_sum.await_whole(self.place.number, check)
        else:
            await_whole(self.store, self.place.view, "whole", self.place.size, check)

    def say_seen(self) -> None:
        """That this worker knows of all that they have it."""
        if self.shared_sum is None:
            self.store.add(f"{self.place.view}/seen", 1)

    def await_seen(self, check: Callable[[], None]) -> None:
        """Before this process ends, and its store with it. Memory stays for those who have it mapped."""
        if self.shared_sum is None:
            await_whole(self.store, self.place.view, "seen", self.place.size, check)

    def check_failed(self) -> None:
        """Raises Skipped once a member has failed in this view's averaging."""
        if self.store.add(f"{self.place.view}/failed", 0) > 0:
            raise Skipped("one of its workers has failed in it")

    def abort(self) -> None:
        """After a failure. gloo's collectives go on until they time out, with what they hold."""
        if self.backend == "nccl":
            _compat.abort_group(self._group)


def finish(group: Any, work: Any, check: Callable[[], None]) -> None:
    """Waits for a collective. Not in its wait(): a thread that is in there when the process ends, and is
    woken by the end of another process, takes this one down with an abort."""
    ask = time.monotonic() + _ASK_S

    def check_all() -> None:
        nonlocal ask
        check()
        # One that has skipped does not come, though no notice may say why: another was lost, and came back.
        if time.monotonic() > ask:
            group.check_failed()
            ask = time.monotonic() + _ASK_S

    await_work(work, check_all)


def await_work(work: Any, check: Callable[[], None]) -> None:
    """Waits for a collective, with check() called meanwhile."""
    pause = _PAUSE_FIRST_S
    while not work.is_completed():
        check()
        time.sleep(pause)
        pause = min(2 * pause, _PAUSE_MAX_S)
    work.wait()  # raises what went wrong


def broadcast_bytes(
    group: Any,
    data: bytes | None,
    source: int,
    device: torch.device,
    check: Callable[[], None],
) -> bytes:
    """The source's bytes on all members. check() is called before each part is sent."""
    size = torch.tensor([0 if data is None else len(data)], device=device)
    check()
    finish(group, group.broadcast(size, source), check)
    whole = torch.empty(int(size.item()), dtype=torch.uint8)
    if data is not None:
        whole = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    for part in whole.split(BUCKET_BYTES):
        moved = part.to(device)
        check()
        finish(group, group.broadcast(moved, source), check)
        if moved is not part:
            part.copy_(moved)
    taken: bytes = whole.numpy().tobytes()
    return taken


def connect_store(address: str) -> Any:
    """Another worker's store. Raises RuntimeError where nobody answers."""
    host, _, port = address.rpartition(":")
    # A worker listens from before it shows its address until it dies. torch's client tries a dead one again
    # until its timeout, and torch 1.13 holds the interpreter's lock all this time.
    try:
        socket.create_connection((host, int(port)), _CONNECT_TIMEOUT_S).close()
    except OSError as error:
        raise RuntimeError(f"the worker at {address} cannot be reached: {error}") from None
    store = _compat.stores().connect(host, int(port), timedelta(seconds=_CONNECT_TIMEOUT_S))
    store.set_timeout(timedelta(seconds=_STORE_TIMEOUT_S))
    return store


def await_whole(store: Any, view: str, key: str, count: int, check: Callable[[], None]) -> None:
    """Until so many have counted themselves under `key`. Raises Skipped once one has failed."""
    while store.add(f"{view}/{key}", 0) < count:
        if store.add(f"{view}/failed", 0) > 0:
            raise Skipped("one of its workers has failed in it")
        check()
        time.sleep(_POLL_S)


def hold(what: object, seconds: float) -> None:
    """Keeps an object that must not be freed earlier, nor at the end of the process: a group of gloo's waits
    then until its collectives have timed out."""
    threading.Thread(target=lambda _: time.sleep(seconds), args=[what], daemon=True).start()


def _too_late(seconds: float) -> str:
    return f"not done after {seconds:g} s"


def _nothing(_: Callable[[], None]) -> None: ...


class _Task:
    def __init__(self, work: Callable[[Callable[[], None]], Any]) -> None:
        self.work = work
        self.abandoned = False
        self.done = False
        self.result: Any = None
        self.error: BaseException | None = None

    def check(self) -> None:
        if self.abandoned:
            raise Skipped("abandoned")


class Helper:
    """Runs what may block on a thread of its own.

    broken  called without arguments: why the work is in vain, or ""
    """

    def __init__(self, broken: Callable[[], str]) -> None:
        self._broken = broken
        self._news = threading.Event()
        self._tasks: queue.SimpleQueue[_Task | None] | None = None
        self._threads: list[threading.Thread] = []

    def told(self) -> None:
        """Asks broken() again. Any thread."""
        self._news.set()

    def run(
        self,
        work: Callable[[Callable[[], None]], Any],
        timeout_s: float,
        watch: bool = True,
    ) -> Any:
        """work(check), where check() raises once the work is abandoned: after `timeout_s`, or with `watch`
        when broken() says so. Then this raises Skipped, and the thread is left to itself.
        """
        task = self.post(work)
        end = time.monotonic() + timeout_s
        try:
            while True:
                self._news.clear()
                if task.done:
                    break
                why = self._broken() if watch else ""
                left = end - time.monotonic()
                if not why and left <= 0:
                    why = _too_late(timeout_s)
                if why:
                    raise Skipped(why)
                self._news.wait(min(left, 1.0))
        except BaseException:
            # Before the caller changes what the work reads.
            task.abandoned = True
            self.close()
            hold(task, timeout_s)  # or its thread would be the one that frees the group
            raise
        if task.error is not None:
            self.close()  # it may still free what has failed
            raise task.error
        return task.result

    def run_here(self, work: Callable[[Callable[[], None]], Any], timeout_s: float) -> Any:
        """As run() does, on the caller's thread: of work that blocks nowhere without calling check()."""
        end = time.monotonic() + timeout_s

        def check() -> None:
            why = self._broken()
            if not why and time.monotonic() > end:
                why = _too_late(timeout_s)
            if why:
                raise Skipped(why)

        try:
            with torch.no_grad():
                return work(check)
        except RuntimeError as error:
            raise Skipped(str(error) or type(error).__name__) from None

    def post(self, work: Callable[[Callable[[], None]], Any]) -> _Task:
        """Likewise, without waiting for it."""
        if self._tasks is None:
            self._tasks = queue.SimpleQueue()
            thread = threading.Thread(
                target=self._serve,
                args=[self._tasks],
                name="syncd-averaging",
                daemon=True,
            )
            thread.start()
            self._threads = [*(one for one in self._threads if one.is_alive()), thread]
        task = _Task(work)
        self._tasks.put(task)
        return task

    def close(self) -> None:
        if self._tasks is not None:
            self._tasks.put(None)
            self._tasks = None

    def end(self, seconds: float) -> None:
        """As close(), and waits for threads that were left to themselves: one that is in a call of torch when the
        process ends would take it down with an abort."""
        self.close()
        until = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))

    def _serve(self, tasks: queue.SimpleQueue[_Task | None]) -> None:
        while True:
            task = tasks.get()
            if task is None:
                return
            try:
                with torch.no_grad():
                    task.result = task.work(task.check)
            except BaseException as error:
                # Of a collective's only the text: its traceback would hold the group.
                failed = isinstance(error, RuntimeError)
                task.error = Skipped(str(error) or type(error).__name__) if failed else error
            # Now, not when the caller has gone on: if the process ends while this thread frees a group, it aborts.
            task.work = _nothing
            task.done = True
            self._news.set()
            del task
