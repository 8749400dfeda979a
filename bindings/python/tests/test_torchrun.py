"""syncd.torchrun with the torch that is there, without a daemon: its command line, its handler's face, and
torch's own stores. tests/torch has the real thing."""

import json
import threading
from datetime import timedelta

import pytest
import torch.distributed.run as torch_run
from torch.distributed.elastic.multiprocessing import Std
from torch.distributed.elastic.rendezvous import RendezvousParameters, api
from torch.distributed.elastic.rendezvous.registry import get_rendezvous_handler

from syncd import torchrun
from syncd._rendezvous import Finished
from syncd._round_store import Line, RoundStore

LINE = ["--nnodes=2:4", "--nproc-per-node=1", "--max-restarts=3", "--rdzv-id=x", "train.py", "--a_b"]


@pytest.fixture
def options(monkeypatch):
    """options(line) gives what torch's run would get."""
    monkeypatch.delenv("PET_MONITOR_INTERVAL", raising=False)
    monkeypatch.delenv("PET_RDZV_BACKEND", raising=False)

    def parse(line):
        given = []
        monkeypatch.setattr(torch_run, "run", given.append)
        torchrun.main(line)
        return given[0]

    return parse


def test_the_command_line_is_torchs(options, monkeypatch):
    found = options(LINE)
    assert (found.nnodes, found.max_restarts, found.rdzv_id) == ("2:4", 3, "x")
    assert (found.training_script, found.training_script_args) == ("train.py", ["--a_b"])
    assert found.rdzv_backend == "syncd"
    assert found.monitor_interval == 0.1
    assert options(["--monitor-interval=2", "--rdzv_backend=c10d", "t.py"]).monitor_interval == 2
    assert options(["--rdzv-backend=c10d", "t.py"]).rdzv_backend == "c10d"
    monkeypatch.setenv("PET_MONITOR_INTERVAL", "3")
    assert options(LINE).monitor_interval == 3


def test_local_addr_is_torchs_option_where_it_has_one():
    class Options:
        rdzv_conf = "last_call=3, local_addr=10.0.0.7,name=n"
        local_addr = None

    torchrun._move_local_addr(Options)
    assert (Options.rdzv_conf, Options.local_addr) == ("last_call=3,name=n", "10.0.0.7")
    old = type("Old", (), {"rdzv_conf": "local_addr=10.0.0.7"})
    torchrun._move_local_addr(old)
    assert old.rdzv_conf == "local_addr=10.0.0.7" and not hasattr(old, "local_addr")


def test_the_default_of_redirects_can_be_read(options):
    options(LINE)
    assert Std.from_str("0") == Std.NONE
    assert Std.from_str("3") == Std.ALL
    assert Std.from_str("0:0,1:3") == {0: Std.NONE, 1: Std.ALL}
    with pytest.raises(ValueError):
        Std.from_str("4")


def test_an_end_because_the_others_have_finished_is_a_good_one(monkeypatch):
    def run(_):
        raise Finished("finished: all")

    monkeypatch.setattr(torch_run, "run", run)
    try:
        torchrun.main(LINE)
    except SystemExit as end:  # torch 1.13 passes it on
        assert end.code == 0

    def fail(_):
        raise api.RendezvousClosedError("stopped")

    monkeypatch.setattr(torch_run, "run", fail)
    with pytest.raises(api.RendezvousClosedError):
        torchrun.main(LINE)


def parameters(**config):
    return RendezvousParameters("syncd", "127.0.0.1:1", "llm", 1, 2, timeout=900, **config)


def test_the_handler_is_torchs():
    torchrun.register()
    torchrun.register()
    handler = get_rendezvous_handler(parameters())
    assert isinstance(handler, api.RendezvousHandler)
    assert handler.get_backend() == "syncd" and handler.get_run_id() == "llm"
    assert handler.num_nodes_waiting() == 0 and not handler.is_closed()
    assert handler.shutdown() and handler.shutdown()
    with pytest.raises(api.RendezvousClosedError):
        handler.next_rendezvous()
    assert torchrun.handler() is torchrun.create_handler, "what the entry point names gives the creator"


def test_bad_settings_are_named():
    torchrun.register()
    with pytest.raises(ValueError, match="--rdzv-conf has 'nodes'; allowed: "):
        get_rendezvous_handler(parameters(nodes="2"))


def test_a_daemon_that_is_not_there_is_torchs_connection_error(monkeypatch):
    monkeypatch.setenv("SYNCD_CONNECT_TIMEOUT_SEC", "0.2")
    handler = torchrun.create_handler(parameters())
    with pytest.raises(api.RendezvousConnectionError, match="127.0.0.1:1"):
        handler.next_rendezvous()


class Whole:
    broken = False

    def is_broken(self):
        return self.broken

    def break_up(self, why):
        raise AssertionError(why)

    def end(self):
        return True


# A wait that times out leaves old stores' connections out of step; ours do not.
def test_torchs_stores_serve():
    stores = torchrun._Stores()
    server = stores.open()
    lines = [Line(server), Line(stores.connect("127.0.0.1", server.port, timedelta(seconds=5)))]
    one, two = (RoundStore(line, Whole(), i, 2, "here") for i, line in enumerate(lines))
    try:
        two.set_timeout(timedelta(milliseconds=30))
        for _ in range(3):
            with pytest.raises(RuntimeError, match="Socket Timeout"):
                two.get("torchelastic/role_info0")
        role = json.dumps({"role": "r", "rank": 0, "local_world_size": 1})
        two.set_timeout(timedelta(seconds=60))
        found = []
        reader = threading.Thread(target=lambda: found.append(two.get("torchelastic/role_info0")))
        reader.start()
        one.set("torchelastic/role_info0", role.encode())
        reader.join(60)
        assert found == [role.encode()]
        assert two.add("n", 3) == 3 and one.add("n", 0) == 3
        assert not two.check(["none"])
        one.multi_set(["a", "b"], ["1", "2"])
        two.wait(["a", "b"], timedelta(seconds=60))
        assert two.multi_get(["a", "b"]) == [b"1", b"2"]
    finally:
        for line in lines:
            line.close()


def test_a_server_that_ends_is_noticed():
    stores = torchrun._Stores()
    server = stores.open()
    line = Line(stores.connect("127.0.0.1", server.port, timedelta(seconds=5)))
    round_ = Whole()
    store = RoundStore(line, round_, 1, 2, "here")
    store.set("torchelastic/role_info/1", json.dumps({"rank": 1, "local_world_size": 2}))
    # Once this is answered all connections are accepted. Of one that is not, torch 1.13's thread ends the
    # process, since the server's system resets it.
    assert store.add("n", 1) == 1
    del server
    round_.broken = True  # as the daemon tells a little later
    assert json.loads(store.get("torchelastic/assigned_ranks/1")) == [2, 4, 2, 4]
    line.close()
