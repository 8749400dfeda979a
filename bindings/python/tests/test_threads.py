"""Calls that wait let other threads of Python run, and end when their client is closed."""

import threading
import time

import pytest

import syncd


class Waiting(threading.Thread):
    """A thread that is in begin() of its worker."""

    def __init__(self, worker):
        super().__init__(daemon=True)
        self.worker, self.step, self.error = worker, None, None
        self.start()
        while not worker._busy.locked():
            time.sleep(0.001)

    def run(self):
        try:
            self.step = self.worker.begin()
        except syncd.Error as error:
            self.error = error


def test_a_wait_releases_the_interpreter(daemon):
    # If begin() held the interpreter's lock, nothing below could run, and it would wait for ever.
    with syncd.connect(daemon.address) as client:
        waiting = Waiting(client.join("job", "bsp", rank=0, world_size=2))
        second = client.join("job", "bsp", rank=1, world_size=2)
        assert sum(range(100_000)) == 4999950000
        assert waiting.step is None
        second.begin()
        waiting.join()
        assert waiting.step.iteration == 0


def test_closing_ends_a_wait(daemon):
    client = syncd.connect(daemon.address)
    waiting = Waiting(client.join("job", "bsp", rank=0, world_size=2))
    client.close()
    waiting.join()
    assert isinstance(waiting.error, (syncd.Cancelled, syncd.Closed))


def test_two_threads_in_one_worker(daemon):
    with syncd.connect(daemon.address) as client:
        worker = client.join("job", "bsp", rank=0, world_size=2)
        waiting = Waiting(worker)
        with pytest.raises(syncd.Error, match="another thread") as caught:
            worker.begin()
        assert caught.value.code == syncd.Status.E_STATE
        assert not worker.should_resync()  # which any thread may ask
    waiting.join()


def test_objects_may_go_in_any_order(daemon):
    for _ in range(20):
        client = syncd.connect(daemon.address)
        worker = client.join("job", "asp", rank=0, name="same")
        worker.begin()
        del client  # the worker keeps it
        worker.push()
        worker.leave()
        del worker
