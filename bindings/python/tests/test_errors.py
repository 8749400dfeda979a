"""Every failure is an exception that says what was wrong and what is allowed."""

import math
import os
import pickle
import socket
import subprocess
import sys
import threading

import pytest

import syncd


@pytest.fixture
def client(daemon):
    with syncd.connect(daemon.address) as opened:
        yield opened


def test_no_daemon(tmp_path):
    with pytest.raises(syncd.Unreachable) as caught:
        syncd.connect(f"unix:{tmp_path}/none", connect_timeout=0.05)
    assert caught.value.retriable and str(tmp_path) in caught.value.message
    assert isinstance(caught.value, ConnectionError)


def test_a_wrong_address():
    with pytest.raises(syncd.Invalid, match="SYNCD_E_INVALID: .*99999") as caught:
        syncd.connect(["localhost", "host:99999"])
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    "options, kind, message",
    [
        ({"begin_timeout": -1}, syncd.Invalid, "begin_timeout=-1; allowed"),
        ({"begin_timeout": math.nan}, syncd.Invalid, "begin_timeout=nan; allowed"),
        ({"request_timeout": 0}, syncd.Invalid, "request_timeout=0; allowed"),
        ({"connect_timeout": "5"}, TypeError, "connect_timeout is of type str; allowed"),
        ({"name": 3}, TypeError, "name is of type int; allowed"),
        ({"name": "a\0b"}, syncd.Invalid, "name holds a NUL"),
    ],
)
def test_wrong_options(options, kind, message):
    with pytest.raises(kind, match=message):
        syncd.connect("localhost", **options)


@pytest.mark.parametrize(
    "options, kind, message",
    [
        ({"rank": -2}, syncd.Invalid, "rank=-2; allowed: 0 to"),
        ({"rank": 0.5}, TypeError, "rank is of type float"),
        ({"world_size": 2**32}, syncd.Invalid, "world_size=4294967296"),
        ({"timeout": 0}, syncd.Invalid, "timeout=0"),
        ({"job": "a b"}, syncd.Invalid, "a b"),
        ({"policy": "nonsense"}, syncd.Invalid, "nonsense"),
    ],
)
def test_wrong_joins(client, options, kind, message):
    with pytest.raises(kind, match=message):
        client.join(**{"job": "job", **options})


def test_another_policy(client):
    with client.join("job", "bsp", rank=0, world_size=2):
        with pytest.raises(syncd.Error, match="bsp.*asp|asp.*bsp") as caught:
            client.join("job", "asp", rank=1, world_size=2)
    assert caught.value.code == syncd.Status.E_POLICY_MISMATCH


def test_calls_out_of_order(client):
    with client.join("job", "asp", rank=0) as worker:
        with pytest.raises(syncd.Error, match="call begin.. first") as caught:
            worker.push()
        assert caught.value.code == syncd.Status.E_STATE
        worker.begin()
        with pytest.raises(syncd.Error) as caught:
            worker.begin()
        assert caught.value.code == syncd.Status.E_STATE
        with pytest.raises(syncd.WrongIteration, match="7"):
            worker.push(iteration=7)
        with pytest.raises(syncd.Invalid, match="samples=-1"):
            worker.push(samples=-1)
        with pytest.raises(TypeError, match="timeout is of type str"):
            worker.push(timeout="soon")
        assert worker.push(loss=float("inf"), samples=1, bytes=2).iteration == 0
        with pytest.raises(TypeError):
            worker.push(loss="low")


def test_after_leaving(client):
    worker = client.join("job", "asp", rank=0)
    with worker:
        worker.leave()
    with pytest.raises(syncd.Closed):
        worker.begin()
    assert not worker.should_resync()
    assert (worker.rank, worker.job, worker.policy) == (0, "job", "asp")


def test_after_closing(client):
    worker = client.join("job", "asp", rank=0)
    client.close()
    client.close()
    with pytest.raises(syncd.Closed):
        worker.begin()
    with pytest.raises(syncd.Closed):
        client.join("job")


def test_a_job_that_was_stopped(daemon, client):
    worker = client.join("job", "asp", rank=0)
    worker.begin()
    daemon.syncctl("job", "stop", "job")
    with pytest.raises(syncd.Stopped):
        worker.push()
    assert worker.begin().stop
    assert list(worker) == []


class Relay:
    """A socket between a client and the daemon, of which the daemon's side can be cut off alone."""

    def __init__(self, address, directory):
        self.address = f"unix:{directory}/relay"
        self._target = address.removeprefix("unix:")
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(f"{directory}/relay")
        self._listener.listen()
        self.pairs = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            near, far = self._listener.accept()[0], socket.socket(socket.AF_UNIX)
            far.connect(self._target)
            self.pairs.append((near, far))
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    @staticmethod
    def _pump(source, sink):
        try:
            while data := source.recv(65536):
                sink.sendall(data)
        except OSError:
            pass  # cut off


def test_a_worker_whose_place_was_taken(daemon, client, tmp_path):
    relay = Relay(daemon.address, tmp_path)
    with syncd.connect(relay.address) as old:
        worker = old.join("job", "asp", rank=0, name="one", host="h")
        worker.begin()
        near, far = relay.pairs[0]
        far.shutdown(socket.SHUT_RDWR)  # the daemon sees an end, and the worker does not
        while True:
            try:
                second = client.join("job", "asp", rank=0, name="one", host="h")
                break
            except syncd.Error as error:  # the daemon has not seen it yet
                assert error.code == syncd.Status.E_RANK_TAKEN
        near.shutdown(socket.SHUT_RDWR)
        with pytest.raises(syncd.Fenced, match="replaced") as caught:
            worker.push()
        assert caught.value.fatal and not caught.value.retriable
        second.leave()


def test_a_forked_child(client):
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            client.join("job")
        except syncd.Error as error:
            code = 0 if error.code == syncd.Status.E_FORKED else 2
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0


def test_errors_can_be_pickled():
    error = syncd.Timeout("waiting for worker 7", -3, None, True, False)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is syncd.Timeout and again.missing == "worker 7" and again.retriable
    assert str(again) == "SYNCD_E_TIMEOUT: waiting for worker 7"


@pytest.mark.parametrize("path, words", [("/nowhere/lib.so", "SYNCD_LIBRARY=/nowhere/lib.so")])
def test_a_missing_library(path, words):
    code = "import syncd\ntry: syncd.connect()\nexcept ImportError as error: print(error)"
    out = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "SYNCD_LIBRARY": path},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert words in out


def test_the_library_is_of_this_version():
    assert syncd.library_version() == syncd.__version__
