"""Groups of processes that die and are started again; leaving with a reason; what a waiting worker
says."""

import asyncio
import json
import logging
import pathlib
import sys
import threading
import time

import pytest

import syncd
import syncd.aio
import syncd.client
from conftest import PATIENCE_S, Process

WORKER = pathlib.Path(__file__).parent / "launch_worker.py"


def start(daemon, rank, workers=4, launch=None, endless=False):
    arguments = [rank, workers] + ([1_000_000, "pause=0.02"] if endless else [12])
    env = {} if launch is None else {"SYNCD_LAUNCH": launch}
    return Process(sys.executable, WORKER, daemon.address, *arguments, env=env)


def shown(daemon, job="job"):
    return [one for one in json.loads(daemon.syncctl("jobs", "--json")) if one["name"] == job]


def workers_of(daemon):
    return json.loads(daemon.syncctl("workers", "job", "--json"))


def wait_until(what, holds):
    end = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end, what
        time.sleep(0.01)


def history(daemon, kinds):
    lines = daemon.syncctl("history", "export", "job", "--format", "jsonl").splitlines()
    return [record for record in map(json.loads, lines) if record["kind"] in kinds]


@pytest.fixture
def group(daemon):
    """Four workers in the middle of their training."""
    processes = [start(daemon, rank, endless=True) for rank in range(4)]
    for process in processes:
        process.wait_for("begun 3")
    yield processes
    for process in processes:
        process.kill()


def finish_together(daemon, started, first="begun 0"):
    """All of the group begin at the same iteration and end in good order."""
    for process in started:
        process.wait_for(first)
    for process in started:
        code, out, err = process.finish()
        assert code == 0, err
        assert "begun 11" in out
    jobs = shown(daemon)
    assert len(jobs) == 1 and jobs[0]["note"] == "finished: every worker has left"


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (2, 0, 3, 1), (1, 3, 0, 2)])
def test_a_group_that_is_killed_and_started_again_goes_on_together(daemon, group, order):
    for rank in order:
        group[rank].kill()
    wait_until("their ends", lambda: not any(one["connected"] for one in workers_of(daemon)))
    started = []
    for rank in order:
        # None of those that are there may train before all are.
        if started:
            assert shown(daemon)[0]["state"] == "waiting"
            assert shown(daemon)[0]["active_workers"] == 0
        started.append(start(daemon, rank))
        started[-1].wait_for("joined")
    finish_together(daemon, started)
    assert len(history(daemon, ["job_reassembling"])) == 1
    assert len(history(daemon, ["job_started"])) == 2


def test_an_orphan_of_the_last_launch_is_stopped(daemon):
    orphan, *others = [
        start(daemon, rank, launch="llm/1", endless=True) for rank in range(4)
    ]
    for process in [orphan, *others]:
        process.wait_for("begun 3")
    for process in others:
        process.kill()
    started = [start(daemon, rank, launch="llm/2") for rank in (3, 1, 2, 0)]
    finish_together(daemon, started)
    code, out, err = orphan.finish()
    assert code == 0 and out.endswith("stopped\n"), err
    lost = history(daemon, ["worker_lost"])
    assert {record["rank"] for record in lost} == {0, 1, 2, 3}
    assert all("superseded by a later start of launch 'llm'" in one["reason"] for one in lost)
    # A late one of the first launch is refused, with both.
    late = start(daemon, 0, launch="llm/1")
    code, _, err = late.finish()
    assert code != 0
    assert "'llm' (number 1)" in err and "'llm' (number 2)" in err


def test_a_smaller_group_is_started_again(daemon, group):
    for process in group:
        process.kill()
    wait_until("their ends", lambda: not any(one["connected"] for one in workers_of(daemon)))
    started = [start(daemon, rank, workers=3) for rank in (1, 2, 0)]
    finish_together(daemon, started)


def test_one_leaves_and_three_crash_and_come_back_singly(daemon, group):
    with syncd.connect(daemon.address) as client:
        group[3].kill()
        wait_until("its end", lambda: not workers_of(daemon)[3]["connected"])
        # Its successor does its part and leaves in good order.
        with client.join("job", rank=3, name="w3", host="h") as worker:
            worker.begin()
            worker.push()
            worker.leave(kind="finished")
    for rank in (2, 0, 1):
        group[rank].kill()
    wait_until("their ends", lambda: not any(one["connected"] for one in workers_of(daemon)))
    started = []
    for rank in (0, 2, 1):
        started.append(start(daemon, rank, workers=3))
        started[-1].wait_for("joined")
    finish_together(daemon, started)


def test_a_job_goes_on_at_the_iteration_of_a_loaded_model(daemon):
    with syncd.connect(daemon.address) as client:
        with client.join("job", "bsp", world_size=1, launch=("llm", 7), resume_at=300) as worker:
            assert (worker.resumed, worker.start_iteration) == (False, None)
            step = worker.begin()
            assert step.iteration == 300 and step.resumed
            assert (worker.resumed, worker.start_iteration) == (True, 300)
            worker.push()
            assert not worker.begin().resumed
            assert worker.start_iteration == 300
        with client.join("other", "bsp", world_size=1, launch="") as worker:
            worker.begin()
            assert (worker.resumed, worker.start_iteration) == (False, 0)


def test_an_exception_is_recorded_as_a_failure(daemon):
    with syncd.connect(daemon.address) as client:
        with pytest.raises(ValueError):
            with client.join("job", "bsp", world_size=1) as worker:
                worker.begin()
                raise ValueError("loss is not finite\nsecond line")
        assert workers_of(daemon)[0]["reason"] == "failed: ValueError: loss is not finite"
        assert [one["reason"] for one in history(daemon, ["worker_lost"])] == [
            "failed: ValueError: loss is not finite"
        ]
        assert shown(daemon)[0]["state"] == "failed"
        assert "ValueError: loss is not finite" in shown(daemon)[0]["note"]
        # The job waits for another all the same.
        with client.join("job", "bsp") as worker:
            assert worker.begin().iteration == 0
            worker.leave(kind="preempted", reason="SIGTERM\x1b\0\ud800" + "x" * 2000)
        reason = workers_of(daemon)[0]["reason"]
        assert reason.startswith("preempted: SIGTERM\\x1b\\x00\\ud800xxx") and len(reason) < 1050
        with client.join("job", "bsp") as worker:
            worker.begin()
            with pytest.raises(SystemExit):
                with worker:
                    raise SystemExit(0)
        assert shown(daemon)[0]["note"] == "finished: every worker has left"


def test_a_failure_stops_a_job_that_says_so(start_daemon):
    daemon = start_daemon(
        '[[job]]\nname = "job"\npolicy = "bsp"\nexpected_workers = 2\non_failure = "stop"\n'
    )
    with syncd.connect(daemon.address) as client:
        one = client.join("job", rank=0)
        other = client.join("job", rank=1)
        one.arrive()
        other.begin()
        assert not one.begin().stop
        one.push()
        one.arrive()
        other.leave(kind="failed", reason="RuntimeError: out of memory")
        step = one.begin()
        assert step.stop
        assert "failed: worker 1 " in shown(daemon)[0]["note"]
        assert shown(daemon)[0]["state"] == "stopped"


@pytest.mark.parametrize(
    "options, message",
    [
        ({"launch": "x" * 65}, "65 bytes"),
        ({"launch": ("llm", -1)}, "number=-1"),
        ({"launch": "a\x1bb"}, "control"),
        ({"resume": "maybe"}, "resume='maybe'; allowed: 'auto', 'new', 'continue'"),
        ({"resume": "continue"}, "without resume_at"),
        ({"resume": "new", "resume_at": 3}, "one of them"),
        ({"resume_at": -1}, "resume_at=-1"),
        ({"exit_grace": -1}, "exit_grace=-1"),
        ({"exit_grace": float("inf")}, "exit_grace=inf"),
        ({"heartbeat_timeout": 0.05}, "heartbeat_timeout=0.05; allowed: 0.1 to 3600"),
        ({"heartbeat_timeout": float("nan")}, "heartbeat_timeout=nan"),
        ({"join_timeout": 0}, "join_timeout=0"),
    ],
)
def test_wrong_options_are_named(daemon, options, message):
    with syncd.connect(daemon.address) as client:
        with pytest.raises(syncd.Invalid, match=message):
            client.join("job", **options)
        with client.join("job") as worker:
            with pytest.raises(syncd.Invalid, match="kind='gone'; allowed: 'left'"):
                worker.leave(kind="gone")


def test_exit_grace_ends_a_killed_worker_at_once(daemon):
    with syncd.connect(daemon.address) as client:
        gone = syncd.connect(daemon.address)
        gone.join("job", "asp", rank=0, world_size=2, exit_grace=0)
        with client.join("job", rank=1):
            gone.close()
            wait_until("its loss", lambda: workers_of(daemon)[0]["state"] == "lost")
            reason = history(daemon, ["worker_lost"])[0]["reason"]
            assert "its connection closed" in reason and "exit_grace is 0" in reason


SILENT = """
import os, signal, sys, syncd
client = syncd.connect(sys.argv[1])
client.join("job", "asp", rank=0, world_size=2, heartbeat_timeout=0.2)
os.kill(os.getpid(), signal.SIGSTOP)
"""


def test_a_worker_chooses_how_long_a_silence_cuts_it_off(start_daemon):
    # The daemon itself would wait for an hour.
    daemon = start_daemon('[timeouts]\nheartbeat_timeout = "1h"\n')
    silent = Process(sys.executable, "-c", SILENT, daemon.address)
    try:
        wait_until("its join", lambda: shown(daemon))
        wait_until("its end", lambda: not workers_of(daemon)[0]["connected"])
    finally:
        silent.child.kill()
        silent.child.wait()


def test_a_waiting_worker_says_for_what(daemon, monkeypatch, caplog):
    monkeypatch.setattr(syncd.client, "_SAY_S", 0.2)
    monkeypatch.setattr(syncd.client, "_SLICE_S_FIRST", 0.1)
    monkeypatch.setattr(syncd.client, "_SLICE_S_MAX", 0.1)
    caplog.set_level(logging.INFO, "syncd")
    with syncd.connect(daemon.address) as client:
        with client.join("job", "bsp", rank=0, world_size=2) as worker:
            with pytest.raises(syncd.Timeout):
                worker.begin(timeout=0.5)
            said = [record.getMessage() for record in caplog.records]
            assert said and said[0].startswith("job 'job', worker 0: waiting for 1 of 2 workers: 1")
            # Also in another thread.
            texts = []
            worker._on_wait = texts.append
            thread = threading.Thread(target=worker.begin)
            thread.start()
            wait_until("a word", lambda: texts)
            client.join("job", rank=1).begin()
            thread.join()
            assert "waiting for 1 of 2 workers: 1" in texts[0]


def test_a_start_is_waited_for_no_longer_than_join_timeout(daemon):
    with syncd.connect(daemon.address) as client:
        with client.join("job", "bsp", rank=0, world_size=2, join_timeout=1.2) as worker:
            with pytest.raises(syncd.Timeout, match=r"\(join_timeout\): waiting for 1 of 2 workers: 1"):
                worker.begin()


def test_the_same_with_asyncio(daemon, monkeypatch):
    monkeypatch.setattr(syncd.client, "_SAY_S", 0.2)
    texts = []

    async def run():
        async with syncd.aio.connect(daemon.address) as client:
            async with await client.join(
                "job", "bsp", rank=0, world_size=2, on_wait=texts.append, resume_at=5
            ) as worker:
                beginning = asyncio.ensure_future(worker.begin())
                while not texts:
                    await asyncio.sleep(0.01)
                other = await client.join("job", rank=1, world_size=2, resume_at=5)
                step = await other.begin()
                assert (await beginning).resumed and step.resumed
                assert worker.resumed and worker.start_iteration == 5
                await other.leave(kind="failed", reason="here")

    asyncio.run(run())
    assert "waiting for 1 of 2 workers: 1" in texts[0]
    assert workers_of(daemon)[1]["reason"] == "failed: here"
