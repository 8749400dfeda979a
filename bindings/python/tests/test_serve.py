"""serve(): the daemon inside this process."""

import os
import signal
import subprocess
import sys

import pytest

import syncd

try:
    syncd._server.load_server()
except syncd.LibraryNotFound as missing:
    pytest.skip(str(missing), allow_module_level=True)


def count(address, iterations):
    with syncd.connect(address) as client, client.join("job", "bsp", rank=0) as worker:
        for step in worker.steps(iterations):
            worker.push()
        return worker.start_iteration


def test_a_server_in_memory():
    with syncd.serve() as server:
        assert server.addresses == (server.address,)
        assert server.address.startswith("tcp:127.0.0.1:")
        assert server.address in repr(server)
        count(server.address, 3)
    assert "stopped" in repr(server)
    server.stop()
    with pytest.raises(syncd.Unreachable):
        syncd.connect(server.address, connect_timeout=0.05)


def test_a_store_outlives_its_server(tmp_path):
    for iterations in (3, 5):
        with syncd.serve(tmp_path / "store", tcp="off", unix=tmp_path / "s") as server:
            assert server.addresses == (f"unix:{tmp_path}/s",)
            with syncd.connect(server.address) as client:
                worker = client.join("job", "asp", rank=0, name="w", host="h")
                begun = worker.begin().iteration
                assert begun == (0 if iterations == 3 else 3)
                for _ in range(begun, iterations):
                    worker.push()
                    if worker.begin().iteration == iterations:
                        break


def test_several_addresses_and_several_servers(tmp_path):
    both = ["127.0.0.1:0", "[::1]:0"]
    with syncd.serve(unix=tmp_path / "s", tcp=both) as first, syncd.serve() as second:
        assert len({*first.addresses, *second.addresses}) == 4
        for address in (*first.addresses, *second.addresses):
            count(address, 1)


def test_a_configuration():
    config = '[listen]\nauto_create = false\n[[job]]\nname = "job"\npolicy = "asp"\n'
    config += "expected_workers = 1\n"
    with syncd.serve(config=config) as server, syncd.connect(server.address) as client:
        with client.join("job", rank=0) as worker:
            assert worker.policy == "asp"
        with pytest.raises(syncd.Error, match="other"):
            client.join("other")


@pytest.mark.parametrize(
    "options, message",
    [
        ({"tcp": "nowhere"}, r"^SYNCD_E_INVALID: tcp: listen.tcp = \"nowhere\": .*; allowed"),
        ({"unix": "s" * 200}, "unix: listen.unix"),
        ({"config": "[store]\nmode = 'fats'\n"}, r"config:2: store.mode = \"fats\": .*; allowed"),
        ({"config": "[log]\nfile = '/x'\n"}, "config:2: log.file"),
        ({"config": "[timeouts]\nexit_when_idle = '1s'\n"}, "exit_when_idle"),
        ({"log_level": "loud"}, "log_level='loud'; allowed: 'debug', "),
        ({"store": "a\0b"}, "store holds a NUL"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(syncd.Invalid, match=message):
        syncd.serve(**options)


def test_other_refusals(tmp_path):
    with pytest.raises(TypeError, match="store is of type int"):
        syncd.serve(3)
    with pytest.raises(syncd.Error, match="store.path") as caught:
        syncd.serve(tmp_path / "no" / "parent")
    assert caught.value.code == syncd.Status.E_STORE
    with syncd.serve() as server:
        with pytest.raises(syncd.Error, match="another|in use") as caught:
            syncd.serve(tcp=server.address.removeprefix("tcp:"))
        assert caught.value.code == syncd.Status.E_LISTEN
        with pytest.raises(syncd.Invalid, match="timeout=-1"):
            server.stop(timeout=-1)
        count(server.address, 1)


def test_a_child_of_fork_has_no_server():
    with syncd.serve() as server:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                with server:
                    pass  # ends nothing
                server.stop()
            except syncd.Error as error:
                code = 0 if error.code == syncd.Status.E_FORKED else 2
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        count(server.address, 1)


@pytest.mark.parametrize("log", [False, True])
def test_a_process_that_does_not_stop_its_server_ends(log):
    code = (
        f"import syncd; server = syncd.serve(log={log})\n"
        "client = syncd.connect(server.address); worker = client.join('job', rank=0, world_size=2)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert ("worker_joined" in done.stderr or " listening" in done.stderr) == log


def test_signals_are_the_programs():
    with syncd.serve():
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_missing_library():
    code = "import syncd\ntry: syncd.serve()\nexcept ImportError as error: print(error)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "SYNCD_SERVER_LIBRARY": "/nowhere/lib.so"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "SYNCD_SERVER_LIBRARY=/nowhere/lib.so cannot be loaded" in done.stdout
