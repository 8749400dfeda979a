"""A worker that a round of torchrun's has started asks for no checkpoint once that round is broken or over."""

import signal
import threading

import pytest

import syncd


class Agents:
    """Two agents in job rdzv.llm, as torchrun's handler has them, without torch."""

    def __init__(self, address):
        self._address = address
        self._clients = []
        self.living = [self.join("a"), self.join("b")]
        self.begin()

    def join(self, name):
        self._clients.append(syncd.connect(self._address))
        return self._clients[-1].join("rdzv.llm", "gather:2", name=name)

    def begin(self):
        """The next round, of all that live."""
        waiting = [threading.Thread(target=worker.begin) for worker in self.living]
        for thread in waiting:
            thread.start()
        for thread in waiting:
            thread.join()

    def lose(self):
        self.living.pop().leave(kind="failed", reason="its machine is gone")

    def close(self):
        for client in self._clients:
            client.close()


@pytest.fixture
def agents(daemon):
    made = Agents(daemon.address)
    yield made
    made.close()


@pytest.fixture
def worker(daemon):
    """In round 1 of that job: it takes part in checkpoints, and its job runs."""
    with syncd.connect(daemon.address) as client:
        made = client.join(
            "train", "asp", world_size=1, launch=("llm", 1), checkpoints=True, name="w"
        )
        made.begin()
        yield made


def refusal(worker):
    with pytest.raises(syncd.Error) as caught:
        worker.request_checkpoint("SIGTERM", leaving=True)
    assert caught.value.code == syncd.Status.E_BROKEN
    return caught.value.message


def test_a_whole_round_saves_and_a_broken_one_does_not(agents, worker):
    assert worker.request_checkpoint("SIGTERM", leaving=True) == 1
    agents.lose()
    said = refusal(worker)
    assert "round 1 of job 'rdzv.llm', which started this worker, is broken" in said
    assert "'b' failed (its machine is gone)" in said
    # Who stays may ask: the job itself has lost none.
    assert worker.request_checkpoint("an operator") == 1


def test_a_later_round_is_named(agents, worker):
    agents.lose()
    agents.living.append(agents.join("c"))
    agents.begin()
    assert "is over: round 2 has begun" in refusal(worker)


def test_a_job_that_has_ended_is_named(daemon, agents, worker):
    daemon.syncctl("job", "stop", "rdzv.llm", "--reason", "enough")
    assert "is over: the job has ended (stopped by an operator: enough)" in refusal(worker)


def test_who_finished_has_broken_nothing(agents, worker):
    agents.living.pop().leave(kind="finished")
    assert worker.request_checkpoint("SIGTERM", leaving=True) == 1


@pytest.mark.parametrize("launch", [None, "llm", ("other", 1), ("llm", 7)])
def test_what_no_round_has_started_saves(daemon, agents, launch):
    agents.lose()
    with syncd.connect(daemon.address) as client:
        with client.join(
            "train", "asp", world_size=1, launch=launch, checkpoints=True, name="w"
        ) as worker:
            worker.begin()
            assert worker.request_checkpoint("SIGTERM", leaving=True) == 1


def test_a_sigterm_of_torchruns_ends_the_worker_at_once(daemon, agents, run, tmp_path):
    """The job has two workers, of which one trains alone: it waits in a barrier, and a checkpoint would
    never be complete."""
    started = [
        run(
            "checkpoint_worker.py",
            tmp_path / "saved",
            "sharded",
            env={
                "SYNCD_ADDR": daemon.address,
                "SYNCD_LAUNCH": "llm/1",
                "RANK": str(rank),
                "WORLD_SIZE": "2",
            },
        )
        for rank in range(2)
    ]
    for process in started:
        process.wait_for("trains")
    started[1].child.send_signal(signal.SIGSTOP)
    agents.lose()
    started[0].child.send_signal(signal.SIGTERM)
    code, _, err = started[0].finish()
    assert code == 128 + signal.SIGTERM
    assert "preempted by SIGTERM; " in err
    assert "round 1 of job 'rdzv.llm', which started this worker, is broken" in err
