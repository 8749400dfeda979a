"""A list of endpoints: several daemons, of which one at a time takes connections."""

import contextlib
import socket
import threading

import pytest

import syncd
from conftest import PATIENCE_S

try:
    syncd._server.load_server()
except syncd.LibraryNotFound as missing:
    pytest.skip(str(missing), allow_module_level=True)


@pytest.fixture
def ports():
    """Two free ports of 127.0.0.1."""
    with contextlib.ExitStack() as bound:
        found = [bound.enter_context(socket.socket()) for _ in range(2)]
        for one in found:
            one.bind(("127.0.0.1", 0))
        numbers = [one.getsockname()[1] for one in found]
    return [f"127.0.0.1:{number}" for number in numbers]


@pytest.mark.parametrize("lives", [0, 1])
def test_one_of_two_is_dead(ports, lives, monkeypatch):
    for address in (ports, ",".join(ports)):
        with syncd.serve(tcp=ports[lives]), syncd.connect(address) as client:
            with client.join("job", "asp", rank=0) as worker:
                assert worker.begin().iteration == 0
    monkeypatch.setenv("SYNCD_ADDR", ",".join(ports))
    with syncd.serve(tcp=ports[lives]), syncd.connect() as client:
        assert client.address == ",".join(ports)
    with pytest.raises(syncd.Unreachable) as caught:
        syncd.connect(connect_timeout=0.5)
    for port in ports:
        assert f"tcp:{port}: connection refused" in caught.value.message


def test_the_daemon_moves_while_a_worker_is_joined(ports, tmp_path):
    """To the second port and back again."""
    steps = []

    def train():
        with syncd.connect(ports, reconnect_timeout=PATIENCE_S) as client:
            with client.join("job", "bsp", rank=0, world_size=2, name="w") as worker:
                joined.set()
                for _ in range(9):
                    steps.append(worker.begin().iteration)
                    worker.push()

    joined = threading.Event()
    trains = threading.Thread(target=train, daemon=True)
    for first, port in ((0, ports[0]), (3, ports[1]), (6, ports[0])):
        with syncd.serve(tmp_path / "store", tcp=port):
            if first == 0:
                trains.start()
                assert joined.wait(PATIENCE_S)
            # Neither gets more than one iteration ahead, so the third needs the worker here.
            with syncd.connect(port) as client:
                other = client.join("job", "bsp", rank=1, world_size=2, name="other", host="h")
                for iteration in range(first, first + 3):
                    assert other.begin().iteration == iteration
                    other.push()
            if first == 6:
                trains.join(PATIENCE_S)
    assert steps == list(range(9))


def test_wrong_lists():
    for wrong, told in (
        (["tls:a", "b"], "'tcp:b:7117' has no TLS, but another one of the list has"),
        (["a", "", "b"], "address 2 is empty"),
        ("a,ssl:b:7117", "'ssl:' is not a scheme"),
        ([f"h{number}" for number in range(17)], "'h16' is one too many; allowed: at most 16"),
    ):
        with pytest.raises(syncd.Invalid) as caught:
            syncd.connect(wrong)
        assert told in caught.value.message
