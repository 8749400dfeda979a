"""syncd for asyncio.

    async with syncd.aio.connect() as client:
        async with await client.join("job", "ssp:3") as worker:
            async for step in worker:
                ...
                await worker.push(loss=loss)

begin(), which may wait for as long as the policy likes, waits on the descriptor of the worker. When
it is cancelled, the worker stays: the request stands, and the next begin() waits on.

The other calls block in the C interface, so each worker has a thread of its own for them, and a
connection of its own. The event loop is never blocked, and such a call costs a hop to the thread
and back more than it does without asyncio. Cancelling one is real, and final: its worker's
connection is closed, which ends the blocked call in the library within milliseconds
(SYNCD_E_CANCELLED there), so that no thread is left behind. The worker can then be used no more;
the daemon keeps its place for exit_grace, and a join under the same name goes on where it was. To
give up such a wait and keep the worker, pass `timeout=` instead of using asyncio.wait_for(). A join
that is cancelled ends in the same way.

Two calls are otherwise. explain() and members(), which any number of tasks may make, take a thread
of the event loop's default executor: cancelling one costs nothing, but its thread stays in the call
until the answer, its `timeout` (None: request_timeout), or the end of the worker's connection. So
does the thread of a connect that is cancelled: it is abandoned at once for the caller, and the
thread undoes it when the library's call returns, which connect_timeout bounds.

Errors are those of `syncd`.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import re
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, AsyncIterator, Callable, TypeVar

from . import client as _client
from ._values import Explanation, Members, Pushed, Round, Step, Update, View
from .errors import Status, Timeout, error_of

_Result = TypeVar("_Result")


async def _in_thread(
    thread: ThreadPoolExecutor, undo: Callable[[Any], object], function: Callable[[], _Result]
) -> _Result:
    """What `function` gives in the thread. If this is cancelled, `undo` gets it there later."""
    pending: Future[_Result] = thread.submit(function)
    try:
        return await asyncio.shield(asyncio.wrap_future(pending))
    except asyncio.CancelledError:

        def clean(done: Future[_Result]) -> None:
            if not done.cancelled() and done.exception() is None:
                undo(done.result())

        pending.add_done_callback(clean)
        raise


class _Connecting:
    """What connect() returns: to be awaited, or entered with `async with`."""

    def __init__(self, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        self._arguments = arguments
        self._options = options
        self._made: Client | None = None

    def __await__(self) -> Any:
        return self._connect().__await__()

    async def _connect(self) -> Client:
        client = Client(self._arguments, self._options)
        await client._probe()
        return client

    async def __aenter__(self) -> Client:
        self._made = await self._connect()
        return self._made

    async def __aexit__(self, *_: object) -> None:
        assert self._made is not None
        self._made.close()


def connect(*arguments: Any, **options: Any) -> _Connecting:
    """As syncd.connect(), with its arguments: `await` it, or use it in `async with`."""
    return _Connecting(arguments, options)


class _Join:
    """A join in a thread, which another thread may end."""

    def __init__(self, spare: _client.Client | None, connect: Callable[[], _client.Client]) -> None:
        self._connection = spare
        self._connect = connect
        self._lock = threading.Lock()
        self._given_up = False

    def join(self, arguments: tuple[Any, ...], options: dict[str, Any]) -> _client.Worker:
        connection = self._connection or self._connect()
        with self._lock:
            self._connection = connection
            given_up = self._given_up
        try:
            if given_up:
                raise error_of(Status.E_CANCELLED, "join: it was given up while connecting")
            return connection.join(*arguments, **options)
        except BaseException:
            connection.close()
            raise

    def give_up(self) -> None:
        """Closes the connection, which ends the join within milliseconds; one that is still
        connecting ends when that does."""
        with self._lock:
            self._given_up = True
            connection = self._connection
        if connection is not None:
            connection.close()


class Client:
    """Where to join from. Made by connect()."""

    def __init__(self, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        self._arguments = arguments
        self._options = options
        self._spare: _client.Client | None = None  # a connection for the next worker
        self._workers: list[Worker] = []
        self._joins: list[_Join] = []
        self._closed = False

    def _open(self) -> _client.Client:
        return _client.connect(*self._arguments, **self._options)

    async def _probe(self) -> None:
        thread = ThreadPoolExecutor(1, "syncd-connect")
        try:
            self._spare = await _in_thread(thread, lambda made: made.close(), self._open)
        finally:
            thread.shutdown(wait=False)

    async def join(self, *arguments: Any, **options: Any) -> Worker:
        """As syncd.Client.join(), with its arguments; over a connection of the worker's own."""
        if self._closed:
            raise error_of(Status.E_CLOSED, "join: this client is closed")
        spare, self._spare = self._spare, None
        thread = ThreadPoolExecutor(1, "syncd-worker")
        attempt = _Join(spare, self._open)
        self._joins.append(attempt)
        try:
            joined = await _in_thread(
                thread,
                lambda made: made._client.close(),
                lambda: attempt.join(arguments, options),
            )
        except BaseException:
            attempt.give_up()
            thread.shutdown(wait=False)
            raise
        finally:
            self._joins.remove(attempt)
        worker = Worker(joined, thread)
        if self._closed:
            worker.close()
            raise error_of(Status.E_CANCELLED, "join: this client was closed")
        self._workers.append(worker)
        return worker

    def close(self) -> None:
        """Closes the connections: joins and calls under way raise Cancelled. Takes a few
        milliseconds."""
        self._closed = True
        spare, self._spare = self._spare, None
        if spare is not None:
            spare.close()
        for attempt in self._joins:
            attempt.give_up()
        workers, self._workers = self._workers, []
        for worker in workers:
            worker.close()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


class Worker:
    """As syncd.Worker, with calls to await. One call at a time. Use it in `async with`, which
    leaves the job. `sync` is the syncd.Worker that it drives."""

    def __init__(self, worker: _client.Worker, thread: ThreadPoolExecutor) -> None:
        self.sync = worker
        self._thread: ThreadPoolExecutor | None = thread
        self._beginning = False

    @property
    def rank(self) -> int:
        return self.sync.rank

    @property
    def world_size(self) -> int:
        return self.sync.world_size

    @property
    def job(self) -> str:
        return self.sync.job

    @property
    def policy(self) -> str:
        return self.sync.policy

    @property
    def resumed(self) -> bool:
        """As syncd.Worker.resumed."""
        return self.sync.resumed

    @property
    def start_iteration(self) -> int | None:
        """As syncd.Worker.start_iteration."""
        return self.sync.start_iteration

    def should_resync(self) -> bool:
        """As syncd.Worker.should_resync(); needs no await."""
        return self.sync.should_resync()

    def mark(self) -> None:
        """As syncd.Worker.mark(); needs no await."""
        self.sync.mark()

    async def begin(self, timeout: float | None = None, data: bytes | None = None) -> Step:
        """As syncd.Worker.begin(). Takes no thread while it waits."""
        self._check_open()
        if self._beginning:
            raise error_of(Status.E_STATE, f"worker {self.rank} is in a begin() of another task")
        total_s = self.sync._client._begin_timeout_s if timeout is None else timeout
        if not total_s >= 0:
            return await self._call(self.sync.begin, timeout, data)  # which says what is wrong with it
        self._beginning = True
        try:
            self.sync.arrive(data)
            answered = await self._readable(total_s)
        finally:
            self._beginning = False
        step = self.sync.poll() if answered else None
        if step is None:
            try:
                step = await self._call(self.sync.begin, 0)  # says why not
            except Timeout as error:
                after = f" after {total_s:.1f} s: "
                text = re.sub(r" after [^:]*: ", after, error.message, count=1)
                raise Timeout(text, error.code, error.name, error.retriable, error.fatal) from None
        return step

    async def _readable(self, timeout_s: float) -> bool:
        """Whether the descriptor became readable in time."""
        loop = asyncio.get_running_loop()
        descriptor = self.sync.fileno()
        ready: asyncio.Future[None] = loop.create_future()

        def answered() -> None:
            if not ready.done():
                ready.set_result(None)

        loop.add_reader(descriptor, answered)
        end = loop.time() + timeout_s
        try:
            while True:
                left_s = end - loop.time()
                piece_s = left_s if self.sync._on_wait is None else min(left_s, _client._SAY_S)
                done, _ = await asyncio.wait(
                    [ready], timeout=None if math.isinf(piece_s) else max(piece_s, 0.0)
                )
                if done:
                    break
                if piece_s >= left_s:
                    return False
                await asyncio.to_thread(self.sync._say_wait)
        finally:
            loop.remove_reader(descriptor)
        return True

    async def restarted(self, iteration: int | None = None, timeout: float | None = None) -> None:
        await self._call(self.sync.restarted, iteration, timeout)

    async def phase(
        self, name: str | None, lease: float = 0, timeout: float | None = None
    ) -> contextlib.AbstractContextManager[None]:
        """As syncd.Worker.phase(): `with await worker.phase("checkpoint", 600): ...`"""
        return await self._call(self.sync.phase, name, lease, timeout)

    async def push(self, *arguments: Any, **options: Any) -> Pushed:
        """As syncd.Worker.push(), with its arguments."""
        return await self._call(lambda: self.sync.push(*arguments, **options))

    async def leave(
        self, timeout: float | None = None, *, kind: str = "left", reason: str = ""
    ) -> None:
        """As syncd.Worker.leave()."""
        await self._call(lambda: self.sync.leave(timeout, kind=kind, reason=reason))

    async def targets(
        self, iteration: int | None = None, timeout: float | None = None
    ) -> list[int]:
        return await self._call(self.sync.targets, iteration, timeout)

    async def collect(
        self, iteration: int | None = None, timeout: float | None = None
    ) -> list[Update]:
        return await self._call(self.sync.collect, iteration, timeout)

    async def consumed(self, iteration: int | None = None, timeout: float | None = None) -> None:
        await self._call(self.sync.consumed, iteration, timeout)

    async def explain(self, timeout: float | None = None) -> Explanation | None:
        """As syncd.Worker.explain(): also while a task waits in begin(). When it is cancelled, its
        thread ends with the answer, `timeout` or close()."""
        return await asyncio.to_thread(self.sync.explain, timeout)

    async def members(self, timeout: float | None = None) -> Members:
        """As syncd.Worker.members(): also while a task waits in begin(). When it is cancelled, its
        thread ends with the answer, `timeout` or close()."""
        return await asyncio.to_thread(self.sync.members, timeout)

    async def view(self, number: int | None = None, timeout: float | None = None) -> View:
        """As syncd.Worker.view(). When it is cancelled, its thread ends as members()' does."""
        return await asyncio.to_thread(self.sync.view, number, timeout)

    def round(self) -> Round:
        """As syncd.Worker.round(); needs no await."""
        return self.sync.round()

    async def steps(self, iterations: int | None = None) -> AsyncIterator[Step]:
        """As syncd.Worker.steps()."""
        while True:
            step = await self.begin()
            if step.stop or (iterations is not None and step.iteration >= iterations):
                return
            yield step

    def __aiter__(self) -> AsyncIterator[Step]:
        return self.steps()

    def close(self) -> None:
        """Closes this worker's connection without leaving, which ends a call under way and the
        thread."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self.sync._client.close()
            thread.shutdown(wait=False)

    async def __aenter__(self) -> Worker:
        return self

    async def __aexit__(self, *error: Any) -> None:
        try:
            if self._thread is not None:
                await self._call(self.sync.__exit__, *error)
        finally:
            self.close()

    def _check_open(self) -> ThreadPoolExecutor:
        if self._thread is None:
            raise error_of(
                Status.E_CLOSED,
                "this worker's connection is closed, or a call was cancelled",
            )
        return self._thread

    async def _call(self, function: Callable[..., _Result], *arguments: Any) -> _Result:
        pending = self._check_open().submit(function, *arguments)
        try:
            return await asyncio.shield(asyncio.wrap_future(pending))
        except asyncio.CancelledError:
            self.close()
            raise
