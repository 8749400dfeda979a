"""Whole loops of several processes against a real daemon."""

import math
import signal
import threading
import time

import pytest

import syncd


@pytest.mark.parametrize("policy, bound", [("bsp", 0), ("ssp:2", 2), ("asp", None)])
def test_processes_finish_within_the_policy(daemon, run, policy, bound):
    workers, iterations = 4, 60
    processes = [
        run("worker_process.py", daemon.address, policy, rank, workers, iterations)
        for rank in range(workers)
    ]
    for process in processes:
        code, out, err = process.finish()
        assert code == 0, err
        lines = [line.split() for line in out.splitlines()]
        assert [int(k) for word, k, *_ in lines if word == "pushed"] == list(range(iterations))
        staleness = [int(rest[0]) for word, _, *rest in lines if word == "begun"]
        assert bound is None or max(staleness) <= bound
    history = daemon.syncctl("history", "export", "job", "--format", "csv")
    pushes = [line for line in history.splitlines() if ",push," in line]
    assert len(pushes) == workers * iterations, history[:500]


def test_a_timeout_names_who_is_missing(daemon):
    with syncd.connect(daemon.address) as client:
        first = client.join("job", "ssp:1", rank=0, world_size=2)
        with pytest.raises(syncd.Timeout) as caught:
            first.begin(timeout=0)
        assert "start: 1 of 2 expected workers are ready" in caught.value.message
        assert "worker 1 (not joined)" in caught.value.missing

        second = client.join("job", "ssp:1", rank=1, world_size=2, host="node-b")
        threads = [threading.Thread(target=worker.begin) for worker in (first, second)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        first.push()
        first.begin()
        first.push()
        with pytest.raises(TimeoutError) as caught:  # Python's own, too
            first.begin(timeout=0.01)
        error = caught.value
        assert isinstance(error, syncd.Timeout) and error.retriable and not error.fatal
        assert error.code == syncd.Status.E_TIMEOUT and error.name == "SYNCD_E_TIMEOUT"
        assert "begin(2) of worker 0 not granted after" in error.message
        assert "worker 1 (node-b, clock 0" in error.missing
        why = first.explain()
        assert "worker 1 (node-b" in str(why) and why.rule == "ssp:1" and why.iteration == 2
        assert why.ranks == "1" and why.count == 1 and why.waiting > 0
        assert [(one.rank, one.host, one.clock) for one in why.workers] == [(1, "node-b", 0)]
        assert why.workers[0].last_push_age is None
        second.push()
        assert first.begin(timeout=30).iteration == 2  # the request stood


def test_one_who_waits_for_nothing_has_nothing_to_explain(daemon):
    with syncd.connect(daemon.address) as client, client.join("job", "asp", rank=0) as worker:
        assert worker.explain() is None
        step = worker.begin()
        assert step == syncd.Step(0, step.pull, False, False, False, 0)
        assert worker.explain() is None  # it computes
        assert worker.push() == syncd.Pushed(0, False)
        assert worker.begin().iteration == 1


def test_explain_while_another_thread_is_blocked(daemon):
    with syncd.connect(daemon.address) as client:
        worker = client.join("job", "bsp", rank=0, world_size=2)
        blocked = threading.Thread(target=worker.begin)
        blocked.start()
        while (why := worker.explain()) is None:
            pass
        assert why.rule == "start" and why.ranks == "1"
        client.join("job", "bsp", rank=1, world_size=2).begin()
        blocked.join()


def test_a_long_wait_in_the_main_thread_is_one_wait(daemon):
    with syncd.connect(daemon.address) as client:
        worker = client.join("job", "bsp", rank=0, world_size=2)
        with pytest.raises(syncd.Timeout, match=r"not granted after 1\.3 s: "):
            worker.begin(timeout=1.3)  # two pieces


def test_the_others_go_on_without_a_killed_worker(start_daemon, run):
    daemon = start_daemon(
        '[[job]]\nname = "job"\npolicy = "bsp"\nexpected_workers = 3\nworker_grace = "300ms"\n'
    )
    arguments = [daemon.address, "bsp"]
    victim = run("worker_process.py", *arguments, 2, 3, 20, "hold=5")
    others = [run("worker_process.py", *arguments, rank, 3, 20) for rank in range(2)]
    for process in others:
        process.wait_for("pushed 5")
    victim.wait_for("begun 5 0")
    victim.child.send_signal(signal.SIGKILL)
    for process in others:
        code, out, err = process.finish()
        assert code == 0, err
        assert out.splitlines()[-1] == "pushed 19"
    assert "worker_lost" in daemon.syncctl("history", "export", "job", "--format", "csv")


def test_the_advice_to_restart(daemon):
    def advised(worker):
        end = time.monotonic() + 2
        while not worker.should_resync() and time.monotonic() < end:
            time.sleep(0.001)
        return worker.should_resync()

    with syncd.connect(daemon.address) as client:
        # The daemon looks 200 ms after the grant, whether the other has pushed since.
        policy = "specsync:fixed,200,0.1+asp"
        slow, fast = (client.join("job", policy, rank=rank, world_size=2) for rank in range(2))
        with pytest.raises(syncd.Timeout):
            slow.begin(timeout=0)
        for _ in range(20):  # a machine that is busy may let the moment pass
            fast.begin()
            slow.begin()
            fast.push()
            if advised(slow):
                break
            slow.push()
        assert slow.should_resync() is True
        slow.restarted()
        assert slow.should_resync() is False
        slow.push()


def test_stop_ends_the_loop(daemon, run):
    process = run("worker_process.py", daemon.address, "asp", 0, 1, 2**40)
    process.wait_for("pushed 3")
    daemon.syncctl("job", "stop", "job")
    code, _, err = process.finish()
    assert code == 0, err


def test_ctrl_c_ends_a_wait_in_the_main_thread(daemon, run):
    process = run("worker_process.py", daemon.address, "bsp", 0, 2, 10)
    with syncd.connect(daemon.address) as client:
        second = client.join("job", "bsp", rank=1, world_size=2)
        second.begin()
        process.wait_for("pushed 0")  # and now it waits for us
        process.child.send_signal(signal.SIGINT)
        code, _, err = process.finish()
    assert code != 0 and "KeyboardInterrupt" in err


@pytest.mark.parametrize(
    "variable, begin_timeout, seconds",
    [
        (None, None, math.inf),
        (None, 2, 2),
        ("", 2, 2),  # as if it was not set
        ("3.5", 2, 3.5),
        ("0", 2, math.inf),  # the built-in default, and not the code's
        ("0.0", 2, math.inf),
    ],
)
def test_main_and_other_threads_wait_for_as_long(
    daemon, monkeypatch, variable, begin_timeout, seconds
):
    # The library reads the same variable for the threads that it lets wait in one piece.
    if variable is not None:
        monkeypatch.setenv("SYNCD_BEGIN_TIMEOUT_SEC", variable)
    with syncd.connect(daemon.address, begin_timeout=begin_timeout) as client:
        assert client._begin_timeout_s == seconds
