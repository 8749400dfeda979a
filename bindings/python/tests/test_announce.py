"""What a worker announces of itself, what it learns of the others, and what it is told."""

import asyncio
import contextlib
import math
import queue
import threading

import pytest

import syncd
import syncd.aio
from conftest import PATIENCE_S
from syncd import EventKind, MemberState


def test_a_phase_is_shown_until_it_ends(daemon):
    with syncd.connect(daemon.address) as client, client.join("job", "asp") as worker:
        worker.begin()

        def shown():
            return daemon.syncctl("workers", "job")

        with worker.phase("checkpoint", lease=600):
            assert "in phase 'checkpoint' for " in shown()
            assert " of 10 min 0 s" in shown()
        assert "in phase" not in shown()
        worker.phase("evaluation", 0.5)
        assert "in phase 'evaluation' for " in shown()
        worker.phase(None)
        assert "in phase" not in shown()
        worker.phase("evaluation", 60)
        worker.push()
        assert "in phase" not in shown()


def test_a_phase_that_cannot_be_ended_hides_nothing(daemon):
    with syncd.connect(daemon.address) as client:
        worker = client.join("job", "asp")
        with pytest.raises(ZeroDivisionError), worker.phase("checkpoint", 60):
            client.close()
            raise ZeroDivisionError


@pytest.mark.parametrize(
    "name, lease, part",
    [
        ("no spaces", 1, "phase name 'no spaces': allowed are 1 to 64 of A-Z a-z 0-9 . _ -"),
        ("save", 86401, "a lease of 86401.000 s for phase 'save'"),
        ("save", 0, "allowed are more than 0 and at most 86400 s (24 h)"),
        ("save", -1, "a lease of -1.000 s for phase 'save'"),
        ("save", math.inf, "lease=inf; allowed: more than 0 and at most 86400 s (24 h)"),
        ("save", -math.inf, "lease=-inf; allowed: more than 0"),
        ("save", math.nan, "lease=nan; allowed: more than 0"),
        ("save", 1e300, "lease=1e+300; allowed: more than 0"),
        (None, math.inf, "lease=inf; allowed: more than 0"),
        (None, 5, "a lease of 5000 ms without a name"),
    ],
)
def test_a_phase_says_what_is_wrong(daemon, name, lease, part):
    with syncd.connect(daemon.address) as client, client.join("job", "asp") as worker:
        with pytest.raises(syncd.Invalid) as caught:
            worker.phase(name, lease)
        assert part in caught.value.message
        with pytest.raises(TypeError):
            worker.phase("save", "10")


def test_members_show_their_data(daemon):
    with syncd.connect(daemon.address) as client:
        first = client.join("job", "asp", rank=0, name="a", host="here", data=b"10.0.0.1\0\xff")
        second = client.join("job", "asp", rank=1, name="b", host="there")
        before = second.members()
        assert [(one.rank, one.name, one.host, one.data) for one in before.members] == [
            (0, "a", "here", b"10.0.0.1\0\xff"),
            (1, "b", "there", b""),
        ]
        assert all(one.state is MemberState.ACTIVE and one.clock == 0 for one in before.members)
        first.leave()
        after = second.members()
        assert after.version > before.version
        assert [one.state for one in after.members] == [MemberState.LEFT, MemberState.ACTIVE]
        with pytest.raises(TypeError):
            client.join("job", data="text")
        with pytest.raises(syncd.Invalid) as caught:
            client.join("job", data=bytes(1025))
        assert "len(data)=1025; allowed: at most 1024" in caught.value.message


def test_events_are_told(daemon):
    events = queue.Queue()
    with syncd.connect(daemon.address) as client, syncd.connect(daemon.address) as other:
        worker = client.join("job", "asp", rank=0, world_size=2, on_event=events.put)
        other.join("job", rank=1)
        event = events.get(timeout=PATIENCE_S)
        assert event.kind is EventKind.MEMBERS
        assert event.version == worker.members().version
        assert event.iteration is None and event.wait is None
        daemon.syncctl("job", "stop", "job")
        event = events.get(timeout=PATIENCE_S)
        assert event[:4] == (EventKind.STOP, None, None, None)


def test_a_plan_is_told(daemon):
    events = queue.Queue()
    policy = "elastic_bsp:4"
    with syncd.connect(daemon.address) as client, syncd.connect(daemon.address) as other:
        worker = client.join("job", policy, rank=0, world_size=2, on_event=events.put)
        rest = other.join("job", policy, rank=1)
        assert events.get(timeout=PATIENCE_S).kind is EventKind.MEMBERS
        with pytest.raises(syncd.Timeout):
            rest.begin(timeout=0)
        for _ in range(2):
            for each in worker, rest:
                each.begin()
                each.push()
        event = events.get(timeout=PATIENCE_S)
        assert event.kind is EventKind.PLAN
        assert event.iteration >= 1  # it has pushed two
        assert event.wait is None or event.wait >= 0
        assert event.version is None


def test_what_a_callback_must_not_do_is_refused_and_what_it_raises_is_reported(daemon, monkeypatch):
    reported = queue.Queue()
    monkeypatch.setattr(threading, "excepthook", lambda given: reported.put(given.exc_value))
    with syncd.connect(daemon.address) as client, syncd.connect(daemon.address) as other:
        worker = client.join("job", "asp", rank=0, on_event=lambda _: worker.members())
        other.join("job", rank=1)
        error = reported.get(timeout=PATIENCE_S)
        assert isinstance(error, syncd.Error) and error.code == syncd.Status.E_STATE


def test_a_worker_that_listens_can_be_dropped_at_any_time(daemon):
    with syncd.connect(daemon.address) as client, syncd.connect(daemon.address) as other:
        for i in range(30):
            worker = client.join("job", "asp", name="a", rank=0, on_event=lambda _: None)
            rest = other.join("job", name=f"b{i}", rank=i + 1)
            del worker, rest


def test_a_process_that_listens_ends_by_itself(daemon, run, tmp_path):
    script = tmp_path / "listens.py"
    script.write_text(
        "import sys, syncd\n"
        "client = syncd.connect(sys.argv[1])\n"
        "worker = client.join('job', 'asp', on_event=print)\n"
    )
    process = run(script, daemon.address)
    code, _, err = process.finish()
    assert code == 0, err


@pytest.mark.parametrize("how", ["close", "drop", "close while joining"])
def test_a_callback_may_end_its_client(daemon, run, tmp_path, how):
    # In a process of its own, which a mistake may abort.
    script = tmp_path / "ends.py"
    script.write_text(
        "import sys, threading, time, weakref, syncd\n"
        "address, how = sys.argv[1:]\n"
        "other = syncd.connect(address)\n"
        "for i in range(20):\n"
        "    told, ended = threading.Event(), threading.Event()\n"
        "    holder = {}\n"
        "    def on_event(event):\n"
        "        assert told.wait(60) or how == 'close while joining'\n"
        "        if how == 'drop':\n"
        "            holder.clear()\n"
        "        else:\n"
        "            client = holder['client']\n"
        "            client.close()\n"
        "            assert client.closed\n"
        "        ended.set()\n"
        "    holder['client'] = syncd.connect(address, request_timeout=600)\n"
        "    if how == 'close while joining':\n"
        "        told.set()\n"
        "    holder['worker'] = holder['client'].join(f'job{i}', 'asp', rank=0, on_event=on_event)\n"
        "    gone = weakref.ref(holder['client'])\n"
        "    rest = other.join(f'job{i}', rank=1)\n"
        "    if how == 'close while joining':\n"
        "        joining = holder['client']\n"
        "        try:\n"
        "            while True:\n"
        "                joining.join(f'job{i}').leave()\n"
        "        except syncd.Closed:\n"
        "            pass\n"
        "        del joining\n"
        "    told.set()\n"
        "    assert ended.wait(60)\n"
        "    if how == 'drop':\n"
        "        assert gone() is None\n"
        "    else:\n"
        "        try:\n"
        "            holder['worker'].begin()\n"
        "        except syncd.Closed:\n"
        "            pass\n"
        "print('done')\n"
    )
    code, out, err = run(script, daemon.address, how).finish()
    assert (code, out, err) == (0, "done\n", "")


def test_nothing_is_told_after_a_callback_has_closed_its_client(daemon):
    for i in range(20):
        with syncd.connect(daemon.address) as client, syncd.connect(daemon.address) as other:
            told = queue.Queue()

            def on_event(_, client=client, told=told):
                client.close()
                told.put(threading.current_thread())

            job = f"job{i}"
            workers = [client.join(job, "asp", rank=0)]
            with contextlib.suppress(syncd.Closed):  # the later ones' joins are told to the first
                for rank in range(1, 4):
                    workers.append(client.join(job, rank=rank, on_event=on_event))
                other.join(job, rank=4)
            told.get(timeout=PATIENCE_S)
            del workers  # waits for a call of on_event that is under way
            assert told.empty()


def test_asyncio_has_them_too(daemon):
    async def main():
        async with syncd.aio.connect(daemon.address) as client:
            async with await client.join("job", "asp", data=b"x") as worker:
                with await worker.phase("checkpoint", 60):
                    assert "in phase" in daemon.syncctl("workers", "job")
                assert [one.data for one in (await worker.members()).members] == [b"x"]

    asyncio.run(main())


def test_a_mark_parts_computing_from_exchange(daemon):
    with syncd.connect(daemon.address) as client, client.join("marked", "asp") as worker:
        with pytest.raises(syncd.Error, match="computes no iteration now; begin"):
            worker.mark()
        worker.begin()
        worker.mark()
        worker.push()
        worker.begin()
        worker.push()
    pushes = daemon.syncctl("history", "marked", "--kind", "push")
    assert pushes.count("computed=") == 1
    assert pushes.count("exchange=") == 1


def test_an_asyncio_worker_marks_too(daemon):
    async def train():
        async with await syncd.aio.connect(daemon.address) as client:
            async with await client.join("marked-too", "asp") as worker:
                await worker.begin()
                worker.mark()
                await worker.push()

    asyncio.run(train())
    assert "computed=" in daemon.syncctl("history", "marked-too", "--kind", "push")
