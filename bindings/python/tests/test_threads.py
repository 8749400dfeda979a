"""Calls that wait let other threads of Python run, and end when their client is closed."""

import threading
import time

import pytest

import syncd
from conftest import PATIENCE_S


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


class Calling(threading.Thread):
    """A thread that makes a call which the library cannot end by itself for long."""

    def __init__(self, call):
        super().__init__(daemon=True)
        self.call, self.error = call, None
        self.start()

    def run(self):
        try:
            self.call()
        except syncd.Error as error:
            self.error = error


def test_closing_cancels_a_join(stopped):
    client = syncd.connect(stopped.address, request_timeout=PATIENCE_S * 10)
    stopped.stop_answering()
    calls = [Calling(lambda: client.join("job", "asp")) for _ in range(3)]
    while len(client._joining) < 3 or client._entering():
        time.sleep(0.001)
    client.close()
    for call in calls:
        call.join(PATIENCE_S)
        assert isinstance(call.error, (syncd.Cancelled, syncd.Closed))


def test_closing_while_joins_begin_is_safe(stopped):
    for _ in range(100):
        client = syncd.connect(stopped.address)
        calls = [Calling(lambda client=client: client.join("job", "asp")) for _ in range(3)]
        client.close()
        for call in calls:
            call.join(PATIENCE_S)
            assert not call.is_alive()
            assert call.error is None or isinstance(call.error, syncd.Closed)


@pytest.mark.parametrize("name", ["push", "leave", "members", "restarted", "phase"])
def test_closing_cancels_a_call_of_a_worker(stopped, name):
    client = syncd.connect(stopped.address, request_timeout=PATIENCE_S * 10)
    worker = client.join("job", "asp")
    worker.begin()
    stopped.stop_answering()
    arguments = ("save", 60) if name == "phase" else ()
    call = Calling(lambda: getattr(worker, name)(*arguments))
    if name != "members":  # which any number of threads may call
        while not worker._busy.locked():
            time.sleep(0.001)
    client.close()
    call.join(PATIENCE_S)
    assert isinstance(call.error, (syncd.Cancelled, syncd.Closed))


def test_a_signal_handler_may_close_the_client_of_the_join_it_interrupts(daemon):
    class Interrupted:
        """The library, with a signal handler that runs just before a join enters it."""

        def __getattr__(self, name):
            return getattr(lib, name)

        def syncd_join(self, *arguments):
            client.close()
            return lib.syncd_join(*arguments)

    client = syncd.connect(daemon.address)
    lib, client._lib = client._lib, Interrupted()
    worker = client.join("job", "asp")
    assert client.closed
    with pytest.raises(syncd.Closed):
        worker.begin()
