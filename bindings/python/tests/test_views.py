"""Jobs with views: rounds of gather, who is in them, and what becomes of them."""

import asyncio
import logging
import queue
import threading
import types

import pytest

import syncd
import syncd.aio
from conftest import PATIENCE_S
from syncd import EventKind, Round
from syncd._rendezvous import Member, read_settings


def begin_beside(worker, data):
    """Begins on a thread; the queue gives the step."""
    steps = queue.Queue()

    def begin():
        try:
            steps.put(worker.begin(data=data))
        except syncd.Error as error:
            steps.put(error)

    threading.Thread(target=begin, daemon=True).start()
    return steps


def together(workers, datas):
    waiting = [begin_beside(worker, data) for worker, data in zip(workers, datas)]
    return [steps.get(timeout=PATIENCE_S) for steps in waiting]


@pytest.fixture
def pair(daemon):
    with syncd.connect(daemon.address) as one, syncd.connect(daemon.address) as two:
        yield [one.join("job", "gather:2", name="a"), two.join("job", "gather:2", name="b")]


def test_a_round_brings_its_view(pair):
    a, b = pair
    assert a.round() == Round(0, 0, 0)
    with pytest.raises(syncd.Error) as caught:
        a.view()
    assert caught.value.code == syncd.Status.E_STATE
    steps = together(pair, [b"a\0:1", b"b:2"])
    assert [(s.view, s.view_rank, s.view_size, s.view_data) for s in steps] == [
        (1, 0, 2, b"a\0:1"),
        (1, 1, 2, b"a\0:1"),
    ]
    view = b.view()
    assert view.number == 1 and view == a.view(1)
    assert [(m.rank, m.name, m.data) for m in view.members] == [
        (0, "a", b"a\0:1"),
        (1, "b", b"b:2"),
    ]
    assert a.round() == b.round() == Round(1, 0, 0)
    with pytest.raises(syncd.Invalid) as caught:
        a.view(7)
    assert "7" in caught.value.message


def test_a_begin_breaks_the_round_of_the_others(daemon):
    events = queue.Queue()
    with syncd.connect(daemon.address) as one, syncd.connect(daemon.address) as two:
        a = one.join("job", "gather:2", name="a")
        b = two.join("job", "gather:2", name="b", on_event=events.put)
        together([a, b], [b"1", b"2"])
        again = begin_beside(a, None)
        while (event := events.get(timeout=PATIENCE_S)).kind is not EventKind.ROUND:
            pass
        assert event.version == 1 and b.round() == Round(1, 1, 0)
        step = b.begin()
        assert (step.view, step.view_data) == (2, b"1"), "the data of before"
        assert again.get(timeout=PATIENCE_S).view == 2
        assert b.round() == Round(2, 0, 0)


def test_a_stop_says_who_has_finished(pair):
    a, b = pair
    together(pair, [b"", b""])
    a.leave(kind="finished")
    step = b.begin()
    assert step.stop and step.reason.startswith("finished") and "'a'" in step.reason


def test_a_job_without_views_says_so(daemon):
    with syncd.connect(daemon.address) as client, client.join("job", "asp") as worker:
        for call in (worker.view, lambda: worker.begin(data=b"x"), lambda: worker.arrive(b"x")):
            with pytest.raises(syncd.Unsupported) as caught:
                call()
            assert "job 'job' has no views" in caught.value.message
        assert worker.round() == Round(0, 0, 0)
        step = worker.begin()
        assert (step.view, step.view_rank, step.view_size, step.view_data) == (0, 0, 0, b"")
        with pytest.raises(TypeError):
            worker.begin(data="text")


def test_data_is_bounded(pair):
    with pytest.raises(syncd.Invalid) as caught:
        pair[0].begin(data=bytes(1025))
    assert "len(data)=1025; allowed: at most 1024" in caught.value.message


def test_asyncio_has_them_too(daemon):
    async def main():
        async with syncd.aio.connect(daemon.address) as client:
            worker = await client.join("job", "gather:1", name="a")
            step = await worker.begin(data=b"x")
            assert step.view == 1 and step.view_data == b"x"
            assert [one.name for one in (await worker.view()).members] == ["a"]
            assert worker.round() == Round(1, 0, 0)

    asyncio.run(main())


def test_an_agent_says_where_its_numbers_do_not_count(daemon, caplog):
    def member(name, most):
        given = types.SimpleNamespace(
            run_id="llm", endpoint=daemon.address, min_nodes=2, max_nodes=most, config={"name": name}
        )
        return Member(read_settings(given))

    first, second = member("a", 3), member("b", 4)
    with caplog.at_level(logging.WARNING, "syncd.torchrun"):
        first._joined()
        assert not caplog.records
        second._joined()
    assert "runs with gather:2-3, not with gather:2-4 as --nnodes and --rdzv-conf say" in caplog.text
    caplog.clear()
    # The run ends without having finished; the next one may be of another size.
    second.leave("failed", "")
    first.leave("failed", "")
    third = member("c", 5)
    assert third._joined().policy == "gather:2-5"
    assert not caplog.records
    for one in (first, second, third):
        one.close()
