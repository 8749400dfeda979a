"""Agreed checkpoints: what is asked for, saved, found again, and what a SIGTERM brings about."""

import json
import os
import pathlib
import queue
import signal
import threading
import types

import pytest

import syncd
from syncd import checkpoint
from syncd.checkpoint import Saver

from conftest import HERE

WORKERS = 8


@pytest.fixture
def group(daemon, run, tmp_path):
    """Starts the workers of checkpoint_worker.py, which train."""

    def start(kind, count=WORKERS):
        started = [
            run(
                "checkpoint_worker.py",
                tmp_path / "saved",
                kind,
                env={"SYNCD_ADDR": daemon.address, "RANK": str(rank), "WORLD_SIZE": str(count)},
            )
            for rank in range(count)
        ]
        for process in started:
            process.wait_for("trains")
        return started

    return start


def latest(daemon):
    with syncd.connect(daemon.address) as client:
        return client.latest_checkpoint("saved")


def test_an_operator_asks_and_all_save_the_same_iteration(daemon, group):
    workers = group("sharded")
    said = json.loads(daemon.syncctl("checkpoint", "saved", "--wait", "--json"))
    assert said["checkpoint"] == 1 and len(said["shards"]) == WORKERS
    found = latest(daemon)
    assert [shard.location for shard in found.shards] == [one["location"] for one in said["shards"]]
    for shard in found.shards:
        with open(shard.location) as file:
            state = json.load(file)
        assert state == {"iteration": found.iteration, "rank": shard.rank}
        assert shard.iteration == found.iteration
    assert len(workers) == WORKERS


def test_one_copy_suffices_and_is_found_by_a_later_launch(daemon, group):
    group("whole", 2)
    daemon.syncctl("checkpoint", "saved", "--wait")
    found = latest(daemon)
    assert len(found.shards) == 1 and found.shards[0].rank == 0
    assert daemon.syncctl("checkpoint", "saved", "--latest").count(found.shards[0].location) == 1
    daemon.syncctl("job", "stop", "saved")
    with syncd.connect(daemon.address) as client:
        assert client.latest_checkpoint("saved") == found._replace(open=0)
        with pytest.raises(syncd.Error) as error:
            client.latest_checkpoint("nothing")
        assert error.value.code == syncd.Status.E_UNKNOWN_JOB


@pytest.mark.parametrize("number", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 100))])
def test_sigterm_to_all_of_them_saves_one_common_step(daemon, group, number):
    workers = group("sharded")
    for worker in workers:
        worker.child.send_signal(signal.SIGTERM)
    for worker in workers:
        code, _, err = worker.finish()
        assert code == 128 + signal.SIGTERM, err
        assert "preempted by SIGTERM" in err
    found = latest(daemon)
    assert found.number >= 1 and found.open == 0
    assert {shard.iteration for shard in found.shards} == {found.iteration}
    assert len(found.shards) == WORKERS


@pytest.fixture
def notes():
    """A pipe that gets the numbers of this process's signals, as far as they are passed on."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write)
    kept = [(one, signal.getsignal(one)) for one in (signal.SIGTERM, signal.SIGUSR1)]
    yield read
    signal.set_wakeup_fd(-1)
    for one, handler in kept:
        signal.signal(one, handler)
    os.close(read)
    os.close(write)


def test_a_sigterm_is_for_the_latest_worker(notes, monkeypatch):
    """Of a process that trains a second time: the first one's client is closed."""
    preempted = queue.Queue()
    monkeypatch.setattr(checkpoint, "_preempted", lambda worker, _: preempted.put(worker))
    checkpoint.on_sigterm("first")
    checkpoint.on_sigterm("second")
    os.kill(os.getpid(), signal.SIGTERM)
    assert preempted.get(timeout=60) == "second"
    assert os.read(notes, 64) == bytes([signal.SIGTERM])  # passed on once
    assert preempted.empty()


def test_a_sigterm_to_a_forked_process_is_its_own(notes, monkeypatch):
    monkeypatch.setattr(checkpoint, "_preempted", lambda *_: None)
    checkpoint.on_sigterm(types.SimpleNamespace())
    signal.signal(signal.SIGUSR1, lambda *_: None)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(write, b"x")
            os.read(notes, 1)  # which comes only if the signal to this process does not end it
        finally:
            os._exit(1)
    assert os.read(read, 1) == b"x"
    os.kill(child, signal.SIGTERM)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGTERM
    os.kill(os.getpid(), signal.SIGUSR1)
    assert os.read(notes, 64) == bytes([signal.SIGUSR1]), "here its signal is not noted"
    assert signal.SIGTERM not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
    os.close(read)
    os.close(write)


def test_sigterm_while_a_worker_is_lost_ends_at_once(daemon, group):
    workers = group("sharded", 3)
    daemon.syncctl("kick", "saved", "2")
    workers[0].child.send_signal(signal.SIGTERM)
    code, _, err = workers[0].finish()
    assert code == 128 + signal.SIGTERM
    assert "has lost worker 2" in err


def test_the_daemon_numbers_the_shards_whoever_joins_meanwhile(daemon, tmp_path):
    def saver(worker):
        state = {"rank": worker.rank}
        return Saver(worker, tmp_path, lambda: state, sharded=True, save_to=write, load_from=str)

    def join(client, rank, size=None):
        return client.join("grows", "asp", rank=rank, world_size=size, checkpoints=True)

    with syncd.connect(daemon.address) as client:
        first, second = join(client, 0, 2), join(client, 1, 2)
        steps = {}

        def begin(worker):
            steps[worker.rank] = worker.begin()

        threads = [threading.Thread(target=begin, args=[worker]) for worker in (first, second)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert first.request_checkpoint() == 1
        for worker in (first, second):
            worker.push()
        step = first.begin()
        assert step.checkpoint == 1 and first.checkpoint_shard(1) == (0, 2)
        saver(first).save(step)
        third = join(client, 2)  # between the others' saves
        third.begin()
        step = second.begin()
        assert second.checkpoint_shard(1) == (1, 2)
        location = saver(second).save(step)
        found = client.latest_checkpoint("grows")
        assert (found.number, found.shard_count) == (1, 2)
        assert [shard.rank for shard in found.shards] == [0, 1]
        # Only what was asked for.
        assert client.latest_checkpoint("grows", count=0) == found._replace(shards=())
        assert client.latest_checkpoint("grows", first=1, count=1).shards == found.shards[1:]
        assert client.latest_checkpoint("grows", first=1).shards == found.shards[1:]
        assert found.shards[1].location == location
        with pytest.raises(syncd.Error, match="was told of none") as error:
            third.checkpoint_shard(1)
        assert error.value.code == syncd.Status.E_STATE
        with pytest.raises(syncd.Error, match="was told of checkpoint 1 last"):
            first.checkpoint_shard(2)
        with pytest.raises(syncd.Invalid, match="count"):
            client.latest_checkpoint("grows", count=-1)


def test_a_worker_that_waits_asks_ever_more_seldom_and_not_with_the_others():
    for rank in range(1000):
        asked, at = 0, 0.0
        for pause in checkpoint._pauses(rank):
            asked += 1
            at += pause
            assert 0.075 <= pause <= 2.5
            if at >= 20:
                break
        assert asked <= 18
    first = {round(next(checkpoint._pauses(rank)), 4) for rank in range(100)}
    assert len(first) > 90


def write(state, path):
    with open(path, "w") as file:
        json.dump(state, file)


def read(path):
    with open(path) as file:
        return json.load(file)


class Group:
    """Workers of one launch, one after the other in this process: under asp none waits for another."""

    def __init__(self, client, directory, state="", size=2):
        self.workers = [
            client.join("again", "asp", rank=rank, world_size=size, checkpoints=True, name=f"{state}{rank}")
            for rank in range(size)
        ]
        self.savers = [
            Saver(
                worker,
                directory,
                lambda rank=worker.rank: {"of": state, "rank": rank},
                sharded=True,
                save_to=write,
                load_from=read,
            )
            for worker in self.workers
        ]
        threads = [threading.Thread(target=worker.begin) for worker in self.workers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def checkpoint(self, savers=None):
        """The steps that say so; of `savers` alone it is saved."""
        for worker in self.workers:
            worker.push()
        number = self.workers[0].request_checkpoint()
        steps = [worker.begin() for worker in self.workers]
        assert {step.checkpoint for step in steps} == {number}
        for saver, step in zip(self.savers if savers is None else savers, steps):
            saver.save(step)
        return number

    def end(self):
        for worker in self.workers:
            worker.push()
        for worker in self.workers:
            worker.leave()

    def loaded(self):
        return [found and found.state["of"] for found in (saver.load() for saver in self.savers)]


def test_launch_after_launch_saves_beside_the_latest_complete_one(daemon, tmp_path):
    with syncd.connect(daemon.address) as client:
        a = Group(client, tmp_path, "a")
        assert [a.checkpoint(), a.checkpoint()] == [1, 2]
        a.end()
        b = Group(client, tmp_path, "b")
        assert b.loaded() == ["a", "a"]
        # One of two saves: what a saved stays whole, also where b began at the same iteration.
        assert b.checkpoint(b.savers[:1]) == 3
        b.workers[1].push()
        b.workers[1].leave(kind="failed")
        with pytest.raises(syncd.Error, match="was given up") as error:
            b.workers[0].checkpointed(3, "/x", 0, 2)
        assert error.value.code == syncd.Status.E_STATE
        b.workers[0].push()
        b.workers[0].leave()
        c = Group(client, tmp_path, "c")
        assert c.loaded() == ["a", "a"]
        killed = tmp_path / ".again-3-9-1of2.ckpt.4711"  # while it saved
        other = tmp_path / ".another-3-9-1of2.ckpt.4711"
        killed.touch()
        other.touch()
        c.checkpoint()
        found = client.latest_checkpoint("again")
        assert [read(shard.location)["of"] for shard in found.shards] == ["c", "c"]
        assert c.checkpoint() == 4
        c.end()
        latest = {pathlib.Path(one.location) for one in client.latest_checkpoint("again").shards}
        assert set(tmp_path.iterdir()) == latest | {other}, "nothing of earlier ones"


def test_a_checkpoint_of_an_earlier_start_serves_nobody_who_leaves(daemon, tmp_path):
    with syncd.connect(daemon.address) as client:
        a = Group(client, tmp_path, "a")
        number = a.checkpoint()
        assert a.workers[1].request_checkpoint(leaving=True) == number, "it was just complete"
        for worker in a.workers:
            worker.push()
            worker.leave(kind="failed")  # the group is started again
        b = Group(client, tmp_path, "b")
        assert b.workers[1].request_checkpoint(leaving=True) == number + 1
        b.checkpoint()
        b.end()


def test_a_part_of_the_group_saves_no_shards(daemon, tmp_path, caplog):
    with syncd.connect(daemon.address) as client:
        group = Group(client, tmp_path, "whole", size=3)
        assert group.checkpoint() == 1
        lost = group.workers.pop()
        lost.push()
        lost.leave(kind="failed")
        assert group.checkpoint() == 2
        assert "2 of 3 workers are there" in caplog.text
        found = client.latest_checkpoint("again")
        assert (found.number, len(found.shards), found.closed) == (1, 3, 2)
        assert all(read(shard.location) for shard in found.shards)
        for worker in group.workers:
            worker.push()
            worker.leave(kind="failed")


def test_an_answer_that_no_daemon_took_is_given_again(stopped, tmp_path):
    daemon = stopped
    with syncd.connect(daemon.address, request_timeout=0.2) as client:
        worker = client.join("again", "asp", world_size=1, checkpoints=True)
        saver = Saver(worker, tmp_path, dict, save_to=write, load_from=read)
        worker.begin()
        worker.push()
        worker.request_checkpoint(timeout=30)
        step = worker.begin(timeout=30)
        daemon.stop_answering()
        location = saver.save(step)
        daemon.child.send_signal(signal.SIGCONT)
        worker.push(timeout=30)
        step = worker.begin(timeout=30)
        assert not step.checkpoint
        saver.save(step)
        found = client.latest_checkpoint("again", timeout=30)
        assert [shard.location for shard in found.shards] == [location]
        worker.push(timeout=30)
        worker.leave(timeout=30)


def test_the_directory_is_the_same_from_elsewhere(daemon, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with syncd.connect(daemon.address) as client:
        group = Group(client, "here", "a")
        group.checkpoint()
        group.end()
        (tmp_path / "other").mkdir()
        monkeypatch.chdir(tmp_path / "other")
        again = Group(client, "here", "b")
        assert again.loaded() == ["a", "a"]
        again.end()


def test_what_is_wrong_is_named(daemon):
    with syncd.connect(daemon.address) as client:
        with client.join("alone", "asp", checkpoints=True, world_size=1) as worker:
            with pytest.raises(syncd.Error, match="waits for its start"):
                worker.request_checkpoint()
            worker.begin()
            worker.push()
            assert worker.request_checkpoint("a test") == 1
            step = worker.begin()
            assert step.checkpoint == worker.checkpoint == 1
            with pytest.raises(syncd.Invalid, match="shard 3 of 2"):
                worker.checkpointed(1, "/x", 3, 2)
            with pytest.raises(syncd.Invalid, match="the latest one that was asked for is 1"):
                worker.checkpointed(2, "/x")
            with pytest.raises(syncd.Invalid, match="the location is 1025 bytes long"):
                worker.checkpointed(1, "x" * 1025)
            worker.checkpointed(1, "/x")
            worker.checkpointed(1, "/x")
            worker.push()
            # Its last iteration is granted: it is told when it leaves, once.
            worker.begin()
            assert worker.request_checkpoint() == 2
            worker.push()
            with pytest.raises(syncd.Error) as error:
                worker.leave()
            assert error.value.code == syncd.Status.E_CHECKPOINT and worker.checkpoint == 2
            worker.checkpointed(2, "/y")
        assert [shard.location for shard in client.latest_checkpoint("alone").shards] == ["/y"]
        with client.join("other", "asp", world_size=1) as worker:
            worker.begin()
            with pytest.raises(syncd.Error, match="no worker of job 'other' takes part"):
                worker.request_checkpoint()
            worker.push()


def test_the_torch_example_goes_on_with_the_same_losses(start_daemon, run, tmp_path):
    pytest.importorskip("torch")
    example = HERE.parent / "examples" / "agreed_checkpoint.py"

    def start(daemon, directory, iterations):
        return [
            run(
                example,
                tmp_path / directory,
                iterations,
                env={"SYNCD_ADDR": daemon.address, "RANK": str(rank), "WORLD_SIZE": "2"},
            )
            for rank in range(2)
        ]

    def ends(workers):
        for worker in workers:
            code, out, err = worker.finish()
            assert code == 0, err
        return out

    daemon = start_daemon()
    at = 0

    def runs(epoch):
        jobs = json.loads(daemon.syncctl("--json", "jobs"))
        return [(job["state"], job["epoch"]) for job in jobs] == [("running", epoch)]

    for epoch in (1, 2):
        workers = start(daemon, "killed", 100000)
        with syncd.connect(daemon.address) as client:
            while not runs(epoch):
                pass
            daemon.syncctl("checkpoint", "agreed", "--wait")
            at += client.latest_checkpoint("agreed").iteration
        for worker in workers:
            worker.kill()  # SIGKILL, all of them
    again = ends(start(daemon, "killed", at + 40))
    assert again.startswith(f"from {at}: loss ")
    straight = ends(start(start_daemon(), "straight", at + 40))
    assert straight.split("loss ")[1] == again.split("loss ")[1]


def test_a_start_outlasts_a_lost_connection(monkeypatch):
    """Of a daemon that is started again, or another that takes over."""
    monkeypatch.setattr(checkpoint, "_PAUSE_FIRST_S", 0.0)

    class Losing:
        _reconnect_s = None
        calls = 0

        def latest_checkpoint(self, job, **options):
            self.calls += 1
            if self.calls < 3:
                raise syncd.Unreachable("no connection", syncd.Status.E_UNREACHABLE)
            return job, options

    assert checkpoint.ask_latest(Losing(), "job", count=1) == ("job", {"count": 1})
    monkeypatch.setattr(checkpoint, "_PATIENCE_S", -1.0)
    with pytest.raises(syncd.Unreachable):
        checkpoint.ask_latest(Losing(), "job", count=1)


class Anything:
    """As a state of the user's has."""

    def __eq__(self, other):
        return isinstance(other, Anything)


def test_what_torch_saves_it_loads(tmp_path):
    pytest.importorskip("torch")
    path = str(tmp_path / "state")
    checkpoint._torch_save({"rng": Anything()}, path)
    assert checkpoint._torch_load(path) == {"rng": Anything()}
