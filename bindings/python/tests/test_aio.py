"""The asyncio form: loops side by side, and cancellation that reaches the library."""

import asyncio
import signal
import threading

import pytest

import syncd
import syncd.aio


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 60))


def threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("syncd-")]


def join_threads():
    """No thread of the package's stays behind."""
    for thread in threads():
        thread.join(30)
    assert threads() == []


def test_more_workers_than_the_default_pool_has_threads(daemon):
    workers, iterations = 40, 5

    async def loop(client, rank):
        done = []
        async with await client.join("job", "bsp", rank=rank, world_size=workers) as worker:
            assert (worker.rank, worker.policy) == (rank, "bsp")
            async for step in worker.steps(iterations):
                done.append((await worker.push(loss=1.0)).iteration)
        return done

    async def main():
        async with syncd.aio.connect(daemon.address) as client:
            return await asyncio.gather(*(loop(client, rank) for rank in range(workers)))

    assert run(main()) == [list(range(iterations))] * workers
    join_threads()


def test_cancelling_a_wait_ends_it_in_the_library(daemon):
    async def main():
        client = await syncd.aio.connect(daemon.address)
        worker = await client.join("job", "hop:ring", rank=0, world_size=2)
        other = await client.join("job", "hop:ring", rank=1, world_size=2)
        await asyncio.gather(worker.begin(), other.begin())
        await worker.targets()
        await worker.push()
        task = asyncio.ensure_future(worker.collect())
        while not worker.sync._busy.locked():
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(syncd.Closed):
            await worker.begin()
        client.close()

    run(main())
    join_threads()


def test_a_begin_that_is_cancelled_may_be_made_again(daemon):
    async def main():
        async with syncd.aio.connect(daemon.address) as client:
            worker = await client.join("job", "bsp", rank=0, world_size=2)
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(worker.begin(), 0.01)
            task = asyncio.ensure_future(worker.begin())
            while not worker._beginning:
                await asyncio.sleep(0)
            with pytest.raises(syncd.Error, match="in a begin.. of another task"):
                await worker.begin()
            assert "waiting for worker 1" in str(await worker.explain())
            other = await client.join("job", "bsp", rank=1, world_size=2)
            assert (await other.begin()).iteration == 0
            assert (await task).iteration == 0
            with pytest.raises(syncd.Timeout, match=r"not granted after 0\.1 s: "):
                await worker.push()
                await worker.begin(timeout=0.1)
            with pytest.raises(syncd.Invalid):
                await worker.begin(timeout=-1)
            closing = asyncio.ensure_future(worker.begin())
            while not worker._beginning:
                await asyncio.sleep(0)
            worker.close()
            with pytest.raises(syncd.Cancelled):
                await closing

    run(main())
    join_threads()


def test_a_timeout_keeps_the_worker(daemon):
    async def main():
        async with syncd.aio.connect(daemon.address) as client:
            first = await client.join("job", "bsp", rank=0, world_size=2)
            with pytest.raises(syncd.Timeout):
                await first.begin(timeout=0)
            assert "worker 1 (not joined)" in str(await first.explain())
            second = await client.join("job", "bsp", rank=1, world_size=2)
            steps = await asyncio.gather(first.begin(), second.begin())
            assert [step.iteration for step in steps] == [0, 0]
            assert not first.should_resync()

    run(main())
    join_threads()


def test_hop(daemon):
    async def loop(worker):
        async for _ in worker.steps(5):
            assert len(await worker.targets()) == 2
            await worker.push()
            assert len(await worker.collect()) == 3
            await worker.consumed()

    async def main():
        async with syncd.aio.connect(daemon.address) as client:
            joins = (client.join("job", "hop:ring", rank=rank, world_size=3) for rank in range(3))
            workers = await asyncio.gather(*joins)
            await asyncio.gather(*(loop(worker) for worker in workers))
            await asyncio.gather(*(worker.leave() for worker in workers))

    run(main())
    join_threads()


def test_closing_the_client_ends_its_waits(daemon):
    async def main():
        async with syncd.aio.connect(daemon.address) as client:
            worker = await client.join("job", "bsp", rank=0, world_size=2)
            task = asyncio.ensure_future(worker.begin())
            while not worker._beginning:
                await asyncio.sleep(0.001)
        with pytest.raises(syncd.Closed):
            await task
        with pytest.raises(syncd.Closed):
            await client.join("job")

    run(main())
    join_threads()


def test_a_failed_connect_leaves_nothing(tmp_path):
    async def main():
        with pytest.raises(syncd.Unreachable):
            await syncd.aio.connect(f"unix:{tmp_path}/none", connect_timeout=0.05)

    run(main())
    join_threads()


def test_a_cancelled_connect_does_not_hold_its_caller(daemon, monkeypatch):
    may_connect, made = threading.Event(), []
    connect = syncd.client.connect

    def slow_connect(*arguments, **options):
        assert may_connect.wait(60)
        made.append(connect(*arguments, **options))
        return made[0]

    monkeypatch.setattr(syncd.client, "connect", slow_connect)

    async def main():
        task = asyncio.ensure_future(syncd.aio.connect(daemon.address)._connect())
        while not threads():
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task  # though the call in the thread has not ended
        may_connect.set()

    run(main())
    join_threads()
    assert made[0].closed


def test_a_join_that_ends_after_its_cancellation_is_undone(daemon, monkeypatch):
    may_join, joined = threading.Event(), []
    join = syncd.Client.join

    def slow_join(client, *arguments, **options):
        joined.append(join(client, *arguments, **options))
        assert may_join.wait(60)
        return joined[0]

    monkeypatch.setattr(syncd.Client, "join", slow_join)

    async def main():
        async with syncd.aio.connect(daemon.address) as client:
            task = asyncio.ensure_future(client.join("job", "asp", rank=0))
            while not joined:
                await asyncio.sleep(0.001)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            may_join.set()

    run(main())
    join_threads()
    with pytest.raises(syncd.Closed):
        joined[0].begin()


@pytest.mark.parametrize("how", ["cancel", "close"])
def test_a_join_under_way_ends_with_its_task_or_its_client(stopped, how):
    async def main():
        client = await syncd.aio.connect(stopped.address, request_timeout=600)
        stopped.stop_answering()
        task = asyncio.ensure_future(client.join("job", "asp"))
        while not (client._joins and client._joins[0]._connection._joining):
            await asyncio.sleep(0.001)
        if how == "cancel":
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        else:
            client.close()
            with pytest.raises(syncd.Closed):
                await task
        client.close()

    run(main())
    join_threads()


@pytest.mark.parametrize("name", ["explain", "members"])
def test_a_question_that_is_cancelled_keeps_the_worker(stopped, name):
    async def main():
        client = await syncd.aio.connect(stopped.address, request_timeout=600)
        worker = await client.join("job", "bsp", rank=0, world_size=2)
        with pytest.raises(syncd.Timeout):
            await worker.begin(timeout=0)
        stopped.stop_answering()
        with pytest.raises(syncd.Timeout):
            await getattr(worker, name)(timeout=0.01)
        task = asyncio.ensure_future(getattr(worker, name)())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        stopped.child.send_signal(signal.SIGCONT)
        assert len((await worker.members()).members) == 1
        # The thread of the one that was cancelled ends with the connection at the latest; if it did
        # not, asyncio.run() would wait for it here.
        stopped.stop_answering()
        left = asyncio.ensure_future(getattr(worker, name)())
        await asyncio.sleep(0)
        left.cancel()
        client.close()

    run(main())
    join_threads()
