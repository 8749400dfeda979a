"""Who hangs is named to all others, whatever it does, and where it is. With real processes.

SYNCD_HANG_RUNS=<n>  n runs of each fault, for a machine that is idle: each must be named within
                     hang_after + 1 s. Where it is not set: one run, in any time"""

import json
import os
import threading
import time

import pytest

import syncd
from conftest import PATIENCE_S
from syncd._observe import Observer, _Ear
from syncd._stacks import _summary, stacks

MEASURED = "SYNCD_HANG_RUNS" in os.environ
RUNS = range(int(os.environ.get("SYNCD_HANG_RUNS", "1")))
FAULTS = ["loop", "gil", "lock", "collective", "stop", "kill"]


class Ranks:
    """Processes whose lines are read together."""

    def __init__(self, start, size):
        self.processes = [start(rank) for rank in range(size)]
        self.lines = [[] for _ in range(size)]
        for process in self.processes:
            os.set_blocking(process.child.stdout.fileno(), False)
        self._rest = [b""] * size

    def read(self):
        for rank, process in enumerate(self.processes):
            self._rest[rank] += process.child.stdout.read() or b""
            *whole, self._rest[rank] = self._rest[rank].split(b"\n")
            self.lines[rank] += [line.decode() for line in whole]

    def wait_until(self, done):
        end = time.monotonic() + PATIENCE_S
        while not done():
            assert time.monotonic() < end, self.lines
            time.sleep(0.02)
            self.read()

    def first(self, rank, word):
        return next((line for line in self.lines[rank] if line.startswith(word)), None)


def find_the_guilty(daemon, start, size, guilty, fault, hang_after, job):
    ranks = Ranks(start, size)
    others = [rank for rank in range(size) if rank != guilty]
    ranks.wait_until(lambda: all(ranks.first(rank, "told") for rank in others))
    began = float(ranks.first(guilty, "hangs at").split()[2])
    for rank in others:
        line = ranks.first(rank, "told")
        assert f"of {guilty}: waiting for worker {guilty} (" in line
        if MEASURED:
            assert float(line.split()[2]) - began <= hang_after + 1, line
    if fault == "kill":
        return
    assert f"waiting for worker {guilty} (" in daemon.syncctl("explain", job)
    said = daemon.syncctl("inspect", job, "--hanging")
    assert said.startswith(f"worker {guilty} (")
    if fault in ("gil", "stop"):
        assert "(GIL) is held, or it is stopped" in said or "it is not connected" in said
    else:
        assert "Thread MainThread" in said and "in misbehave" in said


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("time_of_it", RUNS)
def test_the_rank_that_hangs_is_named(daemon, run, tmp_path, fault, time_of_it):
    guilty, size, hang_after = time_of_it % 8, 8, 2

    def start(rank):
        arguments = (rank, size, hang_after, guilty, fault, tmp_path)
        return run("hang_step_worker.py", *arguments, env={"SYNCD_ADDR": daemon.address})

    find_the_guilty(daemon, start, size, guilty, fault, hang_after, "steps")


@pytest.mark.slow  # every process takes seconds to import torch
@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault != "kill"])
@pytest.mark.parametrize("time_of_it", RUNS)
def test_the_rank_that_hangs_behind_ddp_is_named(daemon, run, fault, time_of_it):
    pytest.importorskip("torch")
    from test_torch import free_port

    size, hang_after = 4, 4
    guilty = time_of_it % size
    environment = {
        "SYNCD_ADDR": daemon.address,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "GLOO_SOCKET_IFNAME": "lo",
        "USE_LIBUV": "0",
    }

    def start(rank):
        arguments = (rank, size, hang_after, guilty, fault, 100_000)
        return run("hang_worker.py", *arguments, env=environment)

    find_the_guilty(daemon, start, size, guilty, fault, hang_after, "ddp")


def test_a_held_lock_does_not_cut_a_worker_off(start_daemon, run, tmp_path):
    """Its connection lives on a thread that never takes the interpreter's lock."""
    daemon = start_daemon('[timeouts]\nheartbeat_timeout = "1s"\nworker_grace = "1s"\n')

    def start(rank):
        return run("hang_step_worker.py", rank, 2, 4, 1, "gil", tmp_path, env={"SYNCD_ADDR": daemon.address})

    ranks = Ranks(start, 2)
    ranks.wait_until(lambda: ranks.first(0, "told"))
    assert "waiting for worker 1 (" in ranks.first(0, "told")
    assert "worker_disconnected" not in (daemon.directory / "log").read_text()


def test_what_a_process_says_is_cut_and_escaped(daemon):
    long_line = "\x1b[31m" + "x" * (1 << 20) + "\udcff"
    with syncd.connect(daemon.address) as client:
        with client.join("job", "asp", rank=0, on_inspect=lambda: "first\n" + long_line):
            said = daemon.syncctl("inspect", "job", "0")
            assert "first\n" in said and "\\x1b[31m" in said
            assert len(said) < 20_000
        with client.join("other", "asp", rank=0, on_inspect=lambda: 1 / 0):
            assert "on_inspect raised ZeroDivisionError" in daemon.syncctl("inspect", "other", "0")
        with client.join("silent", "asp", rank=0, on_inspect=None):
            assert "its client answers no such question" in daemon.syncctl("inspect", "silent")


def test_the_stacks_are_those_of_all_threads():
    assert "in test_the_stacks_are_those_of_all_threads" not in stacks()  # its own is left out
    with_thread = []
    thread = threading.Thread(target=lambda: with_thread.append(stacks()))
    thread.start()
    thread.join()
    assert "Thread MainThread" in with_thread[0]
    assert "in test_the_stacks_are_those_of_all_threads" in with_thread[0]


@pytest.mark.parametrize("wrong", [0, -1, float("nan"), float("inf"), 2_592_001])
def test_a_wrong_hang_after_is_named(daemon, wrong):
    with syncd.connect(daemon.address) as client:
        with pytest.raises(syncd.Invalid, match='hang_after=.*; allowed: more than 0'):
            client.join("job", "asp", hang_after=wrong)
        with pytest.raises(TypeError, match="hang_after is of type str"):
            client.join("job", "asp", hang_after="30s")


class StuckWorker:
    """Its daemon does not answer until it may."""

    job = "j"

    def __init__(self):
        self.may = threading.Event()
        self.asked = threading.Event()
        self.left = 0

    def begin(self, timeout):
        self.asked.set()
        assert self.may.wait(PATIENCE_S)
        raise syncd.Error("away", code=syncd.Status.E_UNREACHABLE, retriable=True)

    def leave(self, timeout):
        self.left += 1


class NoClient:
    def close(self):
        pass


def test_an_observer_whose_daemon_is_away_for_long_ends_its_observation(monkeypatch, caplog):
    monkeypatch.setattr("syncd._observe._NOTES_MAX", 10)
    worker = StuckWorker()
    observer = Observer(NoClient(), worker, _Ear(None))
    with observer.step():
        assert worker.asked.wait(PATIENCE_S)
    for _ in range(100):
        with observer.step():
            observer.computed()
    assert observer._notes.qsize() == 10
    assert [record.message for record in caplog.records] == [
        "observation of job j ends: the daemon does not answer, and 10 notes wait for it"
    ]
    worker.may.set()
    observer._thread.join(PATIENCE_S)
    assert worker.left == 1
    observer.close()


def test_torchs_flight_recorder_is_told_in_lines():
    entry = {"profiling_name": "gloo:all_reduce", "collective_seq_id": 26, "state": "scheduled"}
    status = {"0": {"last_enqueued_collective": 26, "last_completed_collective": 25}}
    text = _summary(json.dumps({"entries": 20 * [entry], "pg_status": status}))
    assert text.splitlines()[0] == "  process group 0: last enqueued 26, completed 25"
    assert text.splitlines()[1:] == 8 * ["  gloo:all_reduce 26: scheduled"]
    assert _summary(json.dumps({"entries": []})) == ""
    assert "cannot be read" in _summary("pleted_ns\":0}")
