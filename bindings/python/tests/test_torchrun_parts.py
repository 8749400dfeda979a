"""The parts of syncd.torchrun without torch and a daemon: settings, the store of a round, and what the
handler does on what it is told. Stores and the membership are the test's own."""

import json
import threading
import time
import types
from datetime import timedelta

import pytest

import syncd
from syncd import Round, Step, _address, _rendezvous, _round_store
from syncd._rendezvous import Core, Failures, Finished, TimedOut, launch_name, read_settings
from syncd._round_store import AGAIN, Line, RoundStore, StoreLost

PATIENCE_S = 60


def parameters(**given):
    config = given.pop("config", {})
    made = {"run_id": "llm", "endpoint": "host:7117", "min_nodes": 2, "max_nodes": 4, **given}
    return types.SimpleNamespace(config=config, **made)


# ---- Settings


def test_settings_say_what_the_command_line_says(monkeypatch):
    settings = read_settings(
        parameters(
            config={
                "timeout": 900,
                "last_call": "1.5s",
                "straggle_wait": "2min",
                "token_file": "/t",
                "ca": "/ca",
                "name": "node-7",
            }
        )
    )
    assert settings.job == "rdzv.llm"
    assert settings.policy == "gather:2-4,last_call=1500ms,straggle_wait=2m"
    assert settings.address == "host:7117"
    assert settings.name == "node-7"
    assert settings.files == {"token_file": "/t", "ca_file": "/ca"}
    assert settings.join_timeout == 600
    assert read_settings(parameters(endpoint=" ")).address is None
    assert read_settings(parameters(min_nodes=3, max_nodes=3)).policy == "gather:3"
    assert read_settings(parameters(local_addr="10.1.1.1")).local_addr == "10.1.1.1"


@pytest.mark.parametrize(
    "config, warns",
    [
        ({"regroup_wait": "30s"}, True),
        ({"regroup_wait": "30s", "name": "node-7"}, False),
        ({"regroup_wait": "0"}, False),
        ({"regroup_wait": "0s"}, False),
        ({"last_call": "3s"}, False),
    ],
)
def test_regroup_wait_needs_a_name(caplog, config, warns):
    read_settings(parameters(config=config))
    said = "--rdzv-conf regroup_wait=30s does nothing without name=..."
    assert (said in caplog.text) == warns


@pytest.mark.parametrize(
    "asked, runs, differs",
    [
        ("gather:2-4", "gather:2-4", False),
        ("gather:2,last_call=120s,straggle_wait=1m", "gather:2-2,last_call=2m", False),
        ("gather:2-4", "gather:2-3", True),
        ("gather:2-4,last_call=3s", "gather:2-4", True),
        ("gather:2-4", "gather:2-4,of_a_later_version=yes", True),
    ],
)
def test_an_agent_whose_numbers_do_not_count_says_so(caplog, asked, runs, differs):
    settings = read_settings(parameters())._replace(policy=asked)
    _rendezvous._compare_policies(settings, runs)
    assert bool(caplog.records) == differs
    if differs:
        assert f"rendezvous 'llm' runs with {runs}, not with {asked} as --nnodes" in caplog.text


@pytest.mark.parametrize(
    "config, part",
    [
        ({"is_host": "1"}, "--rdzv-conf has 'is_host'; allowed: ca, certificate,"),
        ({"last_call": "soon"}, "--rdzv-conf last_call='soon'; allowed: whole seconds"),
        ({"join_timeout": "0"}, "--rdzv-conf join_timeout='0'; allowed: seconds, above 0 and below 1e9"),
        ({"join_timeout": "nan"}, "--rdzv-conf join_timeout='nan'; allowed"),
    ],
)
def test_settings_name_what_is_wrong(config, part):
    with pytest.raises(ValueError) as caught:
        read_settings(parameters(config=config))
    assert part in str(caught.value)


def test_run_ids_become_names_of_jobs():
    assert launch_name("llm-7.b_1") == "llm-7.b_1"
    taken = [launch_name(text) for text in ("a/b", "a b", "a_b", "x" * 59, "x" * 60, "x" * 61, "ü")]
    assert len(set(taken)) == len(taken)
    for name in taken:
        assert len(f"rdzv.{name}") <= 64
        assert set(name) <= set(
            "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"
        )


def test_addresses_survive_the_way():
    assert _rendezvous.decode_address(_rendezvous.encode_address("fe80::1", 7)) == ("fe80::1", 7)
    for wrong in (b"", b"{}", b"[1]", b"\xff", b'{"host": "a", "port": "b"}'):
        with pytest.raises(ValueError, match="first member shows no store"):
            _rendezvous.decode_address(wrong)


def test_the_agent_shows_where_it_is_reached(monkeypatch):
    monkeypatch.delenv("SYNCD_ADDR", raising=False)
    settings = read_settings(parameters(local_addr="10.9.9.9"))
    assert _rendezvous.reach_address(settings) == "10.9.9.9"
    monkeypatch.setattr(_address, "_towards", lambda host: {"far": "10.1.1.1"}.get(host, ""))
    monkeypatch.setattr(_rendezvous.socket, "getfqdn", lambda: "no.such.name.invalid")
    for address, found in [
        ("far:7117", "10.1.1.1"),
        ("tls:far:7117", "10.1.1.1"),
        ("tcp:far", "10.1.1.1"),
        ("near:7117, far", "10.1.1.1"),
        ("near:7117", "127.0.0.1"),
        ("unix:/run/far", "127.0.0.1"),
    ]:
        settings = read_settings(parameters(endpoint=address))
        assert _rendezvous.reach_address(settings) == found, address


# ---- Stores of the test's own


class Disconnected(RuntimeError):
    pass


class Memory:
    """What TCPStores of one server have in common."""

    def __init__(self):
        self.values = {}
        self.lock = threading.Lock()
        self.lost = False
        self.silent = threading.Event()  # cleared: it does not answer
        self.silent.set()


class FakeStore:
    def __init__(self, memory, port=0):
        self.memory = memory
        self.port = port

    def _enter(self):
        self.memory.silent.wait()
        if self.memory.lost:
            raise Disconnected("Connection reset by peer")

    def set(self, key, value):
        self._enter()
        with self.memory.lock:
            self.memory.values[key] = value.encode() if isinstance(value, str) else value

    def add(self, key, amount):
        self._enter()
        with self.memory.lock:
            value = int(self.memory.values.get(key, b"0")) + amount
            self.memory.values[key] = str(value).encode()
            return value

    def compare_set(self, key, expected, desired):
        self._enter()
        with self.memory.lock:
            have = self.memory.values.get(key)
            if have is None:
                return expected.encode()
            if have == expected.encode():
                self.memory.values[key] = desired.encode()
            return have


class FakeRound:
    def __init__(self):
        self.broken = False
        self.failed = False
        self.ends = 0
        self.reasons = []

    def is_broken(self):
        return self.broken or bool(self.reasons)

    def break_up(self, why):
        self.reasons.append(why)

    def end(self):
        self.ends += 1
        return not self.failed


@pytest.fixture
def memory():
    made = Memory()
    yield made
    made.silent.set()


@pytest.fixture
def make(memory):
    """make(rank, size, **) gives a member's store and its round."""
    lines = []

    def start(rank=0, size=2, **options):
        line = Line(FakeStore(memory))
        lines.append(line)
        round_ = FakeRound()
        return RoundStore(line, round_, rank, size, "10.0.0.1", **options), round_

    yield start
    for line in lines:
        line.close()


def role(rank, workers=3):
    return json.dumps({"role": "default", "rank": rank, "local_world_size": workers})


def beside(function):
    """Runs it on a thread; join() gives what it returned."""
    answers = []
    thread = threading.Thread(target=lambda: answers.append(function()), daemon=True)
    thread.start()

    class Beside:
        @staticmethod
        def join():
            thread.join(PATIENCE_S)
            assert not thread.is_alive()
            return answers[0]

        @staticmethod
        def alive():
            return thread.is_alive()

    return Beside


def test_what_one_writes_the_other_reads(make):
    first, _ = make(0)
    second, _ = make(1)
    waiting = beside(lambda: second.get("torchelastic/role_info0"))
    first.set("torchelastic/role_info0", role(0).encode())
    assert json.loads(waiting.join())["rank"] == 0
    first.multi_set(["a", "b"], ["1", b"2"])
    assert second.multi_get(["a", "b"]) == [b"1", b"2"]
    second.wait(["a", "b"], timedelta(0))
    assert second.check(["a"]) and not second.check(["a", "c"])
    assert second.add("n", 2) == 2 and first.add("n", 0) == 2
    assert first.timeout == timedelta(seconds=300)
    first.set_timeout(timedelta(milliseconds=20))
    with pytest.raises(RuntimeError, match="no zz after 0.02 s"):
        first.get("zz")


def test_the_first_ones_address_is_the_one_that_all_have_reached(make):
    first, _ = make(0)
    first.set("MASTER_ADDR", b"name-that-nobody-resolves")
    assert first.get("MASTER_ADDR") == b"10.0.0.1"


# Interleaving: rank 1 dies before it writes its role. torch 1.13 and 2.x read in other ways.
def test_a_broken_round_gives_stand_ins_for_the_ranks(make):
    store, round_ = make(0, 3)
    store.set("torchelastic/role_info0", role(0).encode())
    waiting = beside(lambda: store.get("torchelastic/role_info2"))
    assert waiting.alive()
    round_.broken = True
    found = json.loads(waiting.join())
    assert found == {"role": "default", "rank": 2, "local_world_size": 3}
    assert json.loads(store.get("torchelastic/role_info1"))["rank"] == 1
    assert json.loads(store.get("torchelastic/role_info0"))["rank"] == 0, "what is there counts"
    assert store.get("torchelastic/role_info1.FIN") == b"FIN"
    assert store.get("MASTER_ADDR") == b"127.0.0.1" and int(store.get("MASTER_PORT"))
    other, round_ = make(1, 3)
    round_.broken = True
    other.set("torchelastic/role_info/1", role(1))
    assert [
        json.loads(one)["rank"]
        for one in other.multi_get([f"torchelastic/role_info/{i}" for i in range(3)])
    ] == [0, 1, 2]
    assert json.loads(other.get("torchelastic/assigned_ranks/1")) == [3, 9, 3, 9]


def test_a_store_that_is_lost_waits_for_the_daemons_word(make, memory, monkeypatch):
    store, round_ = make(1, 2)
    store.set("torchelastic/role_info1", role(1))
    memory.lost = True
    waiting = beside(lambda: store.get("torchelastic/role_info0"))
    time.sleep(0.05)
    assert waiting.alive(), "the first member may only be about to be lost"
    round_.broken = True
    assert json.loads(waiting.join())["rank"] == 0
    # Where the daemon does not notice, this side breaks the round up.
    monkeypatch.setattr(_round_store, "_STORE_LOST_S", 0)
    late, round_ = make(1, 2)
    assert late.get("MASTER_PORT") == b"1"
    assert round_.reasons == ["its store is lost: Connection reset by peer"]


def test_a_store_that_does_not_answer_holds_nobody(make, memory):
    store, round_ = make(1, 2)
    memory.silent.clear()
    waiting = beside(lambda: store.get("torchelastic/role_info0"))
    time.sleep(0.1)
    assert waiting.alive()
    round_.broken = True
    assert json.loads(waiting.join())["local_world_size"] == 1
    with pytest.raises(StoreLost):
        store._line.call(lambda: True, "add", "n", 1)


TERMINAL = "torchelastic/agent/terminal_state"


def test_the_terminal_state_ends_the_agents_part_once(make):
    first, one = make(0)
    second, two = make(1)
    first.set(TERMINAL + "0", b"0")
    waiting = beside(lambda: first.get(TERMINAL + "1"))
    second.set(TERMINAL + "1", b"1")
    assert waiting.join() == b"1"
    first.set(TERMINAL + "0.FIN", b"FIN")
    assert (one.ends, two.ends) == (1, 1)
    # As later versions have it.
    third, three = make(0)
    assert third.add(TERMINAL + "/num_members", 1) == 1
    assert three.ends == 1


# Interleaving: A sits in the exit barrier, B's worker crashes and B begins.
def test_the_exit_barrier_ends_when_another_begins_anew(make):
    store, _ = make(0)
    other, _ = make(1)
    store.set(TERMINAL + "0", b"0")
    waiting = beside(lambda: store.get(TERMINAL + "1"))
    time.sleep(0.02)
    assert waiting.alive()
    other.begin_anew()
    assert waiting.join() == b"0"


@pytest.mark.parametrize("lives", [True, False])
def test_the_exit_barrier_ends_when_the_last_other_is_dead(make, memory, monkeypatch, lives):
    monkeypatch.setattr(_round_store, "_LOOK_S", 0.01)
    asked = []

    def reachable(address):
        asked.append(address)
        return lives

    store, _ = make(0, reachable=reachable)
    memory.values["syncd/lives/1"] = b"node-b:77"
    store.set(TERMINAL + "0", b"0")
    store.set_timeout(timedelta(seconds=0.2 if lives else PATIENCE_S))
    if lives:
        with pytest.raises(RuntimeError, match="Socket Timeout"):
            store.get(TERMINAL + "1")
    else:
        assert store.get(TERMINAL + "1") == b"0"
    assert set(asked) == {"node-b:77"}


def test_the_last_step_of_the_barrier_does_not_wait_for_the_dead(make, memory, monkeypatch):
    monkeypatch.setattr(_round_store, "_LOOK_S", 0.01)
    store, _ = make(0, reachable=lambda address: False)
    memory.values.update({"syncd/lives/1": b"node-b:77", "syncd/finished/1": b"1"})
    store.set(TERMINAL + "0", b"0")
    memory.values[TERMINAL + "1"] = b"1"
    assert store.get(TERMINAL + "1") == b"1"
    assert store.get(TERMINAL + "1.FIN") == b"FIN"


def test_an_agent_whose_workers_failed_does_not_wait(make, memory):
    store, round_ = make(0)
    round_.failed = True
    store.set(TERMINAL + "0", b"0")
    assert store.get(TERMINAL + "1") == b"0"
    assert "syncd/finished/0" not in memory.values


def test_a_lost_store_ends_the_exit_barrier(make, memory):
    store, _ = make(1)
    store.set(TERMINAL + "1", b"1")
    memory.lost = True
    assert store.get(TERMINAL + "0") == b"0"


# ---- The handler


class Closed(Exception):
    pass


class TookTooLong(Exception):
    pass


class NoConnection(Exception):
    pass


class Strange(Exception):
    pass


class Signal(Exception):
    pass


FAILURES = Failures(Closed, TookTooLong, NoConnection, Strange)


class Network:
    """All stores that were opened."""

    def __init__(self):
        self.servers = {}

    def stores(self):
        network = self

        class Stores:
            @staticmethod
            def open():
                port = 5000 + len(network.servers)
                network.servers[port] = FakeStore(Memory(), port)
                return network.servers[port]

            @staticmethod
            def connect(host, port, timeout):
                server = network.servers[port]
                if server.memory.lost:
                    raise Disconnected("Connection refused")
                return FakeStore(server.memory, port)

        return Stores()


class FakeMember:
    """Answers of a daemon: what begin gives, by a function of (call, data)."""

    def __init__(self, *steps):
        self.steps = list(steps)
        self.data = []
        self.rounds = []
        self.state = Round(0, 0, 0)
        self.left = []
        self.closed = 0

    def begin(self, data):
        self.data.append(data)
        step = self.steps.pop(0)
        step = step(data) if callable(step) else step
        if isinstance(step, Exception):
            raise step
        self.state = Round(step.view, 0, 0)
        return step

    def round(self):
        return self.state

    def leave(self, kind, reason):
        self.left.append((kind, reason))

    def close(self):
        self.closed += 1


def alone(number):
    """A round of one: its own store is the round's."""
    return lambda data: granted(number, 0, 1, data)


def granted(number, rank, size, data):
    return Step(number, True, True, False, False, 0, number, rank, size, data, "")


def stop(reason):
    return Step(0, False, False, False, True, 0, reason=reason)


@pytest.fixture
def network(monkeypatch):
    made = Network()

    class Socket:  # whether a port is open
        @staticmethod
        def create_connection(address, timeout):
            if made.servers[address[1]].memory.lost:
                raise OSError("Connection refused")
            return types.SimpleNamespace(close=lambda: None)

    monkeypatch.setattr(_rendezvous.socket, "create_connection", Socket.create_connection)
    monkeypatch.setattr(_rendezvous, "reach_address", lambda settings: "here")
    for name in ("SYNCD_ADDR", "SYNCD_LAUNCH", "SYNCD_TOKEN_FILE", "SYNCD_CA_FILE"):
        monkeypatch.setenv(name, "before")
    return made


def core(network, member, config=None, **options):
    settings = read_settings(parameters(config=config or {}))
    return Core(settings, member, network.stores(), FAILURES, signal_error=Signal, **options)


def test_a_round_is_entered_and_workers_are_told(network, monkeypatch):
    member = FakeMember(alone(1), alone(2))
    handler = core(network, member, {"token_file": "/t"})
    entered = handler.enter()
    assert (entered.rank, entered.size, entered.host, entered.port) == (0, 1, "here", 5000)
    assert _rendezvous.os.environ["SYNCD_LAUNCH"] == "llm/1"
    assert _rendezvous.os.environ["SYNCD_ADDR"] == "host:7117"
    assert _rendezvous.os.environ["SYNCD_TOKEN_FILE"] == "/t"
    assert _rendezvous.os.environ["SYNCD_CA_FILE"] == "before"
    assert handler.waiting() == 0 and not handler.is_closed()
    # Interleaving: NCCL ids of the last round in a store used again.
    again = handler.enter()
    assert again.port == 5001 and again.store is not entered.store
    assert _rendezvous.os.environ["SYNCD_LAUNCH"] == "llm/2"
    assert network.servers[5000].memory.values[AGAIN] == b"1"


def test_two_meet_at_the_first_ones_store(network):
    first = FakeMember(lambda data: granted(1, 0, 2, data))
    one = core(network, first)
    waiting = beside(one.enter)
    while not first.data:
        time.sleep(0.001)
    time.sleep(0.02)
    assert waiting.alive(), "the other has not confirmed"
    two = core(network, FakeMember(granted(1, 1, 2, first.data[0])))
    other = two.enter()
    entered = waiting.join()
    assert entered.port == other.port == 5000
    other.store.set("x", "y")
    assert entered.store.get("x") == b"y"


# Interleaving: rank 0's agent is killed between its begin and the others' confirmation.
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_member_lost_before_all_confirmed_voids_the_round(network, when):
    doomed = network.stores().open()
    data = _rendezvous.encode_address("here", doomed.port)
    member = FakeMember(granted(1, 1, 3, data), alone(2))
    if when == "before":
        doomed.memory.lost = True
    handler = core(network, member)
    waiting = beside(handler.enter)
    if when == "after":
        while doomed.memory.values.get("syncd/confirmed") != b"1":
            time.sleep(0.001)
        doomed.memory.lost = True
    time.sleep(0.1)
    assert waiting.alive()
    member.state = Round(1, 1, 0)
    entered = waiting.join()
    assert entered.size == 1 and _rendezvous.os.environ["SYNCD_LAUNCH"] == "llm/2"
    assert len(member.data) == 2 and member.data[0] != member.data[1], "each with a store of its own"


def test_a_store_that_cannot_be_reached_is_named(network):
    doomed = network.stores().open()
    doomed.memory.lost = True
    member = FakeMember(granted(1, 1, 2, _rendezvous.encode_address("there", doomed.port)))
    handler = core(network, member, {"confirm_timeout": "0.2"})
    with pytest.raises(NoConnection) as caught:
        handler.enter()
    assert "there:5000, within 0.2 s: Connection refused" in str(caught.value)
    assert "--local-addr" in str(caught.value)
    assert member.left[0][0] == "failed"


def test_a_first_member_that_is_no_agent_is_named(network):
    handler = core(network, FakeMember(granted(1, 1, 2, b"not an address")))
    with pytest.raises(Strange, match="round 1: the round's first member shows no store"):
        handler.enter()


def test_what_is_waiting_is_of_this_round(network):
    member = FakeMember(alone(5), alone(6))
    handler = core(network, member)
    assert handler.waiting() == 0
    handler.enter()
    member.state = Round(5, 1, 2)
    assert handler.waiting() == 3
    # Interleaving: "waiting 1" of round 5 read in round 6.
    handler.enter()
    member.state = Round(5, 1, 2)
    assert handler.waiting() == 0


# Interleaving: A and B finish and shut down, a spare C must neither train alone nor wait.
def test_a_spare_ends_well_when_the_others_have_finished(network):
    handler = core(network, FakeMember(stop("finished: node-a ended its work in round 1")))
    with pytest.raises(Finished) as ended:
        handler.enter()
    assert ended.value.code == 0 and ended.value.reason.startswith("finished: node-a")
    assert handler.is_closed()


def test_a_spare_that_was_cut_off_when_they_finished_ends_well_too(network):
    settings = core(network, FakeMember()).settings
    handler = core(network, FakeMember(stop(f"job '{settings.job}' has ended: finished: all is done")))
    with pytest.raises(Finished):
        handler.enter()


def test_one_that_was_to_form_anew_ends_well_when_the_others_have_finished(network):
    member = FakeMember(alone(1), stop("finished: node-a finished"))
    handler = core(network, member)
    handler.enter()
    member.state = Round(1, 1, 0)
    assert handler.waiting() == 1
    with pytest.raises(Finished):
        handler.enter()


def test_one_whose_workers_crashed_does_not_end_well(network):
    handler = core(network, FakeMember(alone(1), stop("finished: node-a finished")))
    handler.enter()
    with pytest.raises(Closed, match="workers have failed.*finished: node-a"):
        handler.enter()


def test_other_stops_close(network):
    handler = core(network, FakeMember(stop("an operator: enough")))
    with pytest.raises(Closed, match="an operator: enough"):
        handler.enter()
    with pytest.raises(Closed):
        handler.enter()


@pytest.mark.parametrize(
    "error, kind",
    [
        (TimedOut("no round after 600 s"), TookTooLong),
        ("E_UNREACHABLE", NoConnection),
        ("E_AUTH", NoConnection),
        ("E_INVALID", Closed),
        ("E_CLOSED", Closed),
        ("E_POLICY_MISMATCH", Strange),
    ],
)
def test_errors_are_torchs_with_our_sentence(network, error, kind):
    if isinstance(error, str):
        error = syncd.errors.error_of(syncd.Status[error], "our sentence")
    with pytest.raises(kind, match="our sentence|no round after 600 s"):
        core(network, FakeMember(error)).enter()


# ---- shutdown


def test_shutdown_before_a_round_is_a_plain_leave(network):
    member = FakeMember()
    handler = core(network, member)
    assert handler.shut_down(None) and handler.shut_down(ValueError())
    assert member.left == [("left", "")] and member.closed == 1
    with pytest.raises(Closed):
        handler.enter()


@pytest.mark.parametrize(
    "error, left",
    [
        (Signal("got 15"), ("preempted", "Signal: got 15")),
        (ValueError("\n=====\n train.py FAILED\n"), ("failed", "ValueError: train.py FAILED")),
        (ValueError(), ("failed", "ValueError")),
        (None, ("failed", "its agent ended before its work was done")),
    ],
)
def test_shutdown_in_a_round_says_why(network, error, left):
    member = FakeMember(alone(1))
    handler = core(network, member)
    handler.enter()
    assert handler.shut_down(error)
    assert member.left == [left]


def test_shutdown_after_finishing_says_nothing_more(network):
    member = FakeMember(alone(1))
    handler = core(network, member, has_failed=lambda: False)
    handler.enter().store.set(TERMINAL + "0", b"0")
    assert member.left == [("finished", "")]
    member.state = Round(1, 1, 0)
    assert handler.waiting() == 0
    assert handler.shut_down(Signal("got 15"))
    assert member.left == [("finished", "")]


def test_failed_workers_are_told_by_shutdown(network):
    member = FakeMember(alone(1))
    handler = core(network, member, has_failed=lambda: True)
    handler.enter().store.set(TERMINAL + "0", b"0")
    assert member.left == []
    handler.shut_down(RuntimeError("rank 0 exited with 1"))
    assert member.left == [("failed", "RuntimeError: rank 0 exited with 1")]


def test_whether_the_agents_workers_failed_is_asked_of_the_agent():
    class Agent:
        def __init__(self, state):
            group = types.SimpleNamespace(state=types.SimpleNamespace(name=state))
            self._worker_group = group

        def exit_barrier(self):
            return self.deeper()

        @staticmethod
        def deeper():
            return _rendezvous._agent_has_failed()

    assert Agent("FAILED").exit_barrier()
    assert not Agent("SUCCEEDED").exit_barrier()
    assert not _rendezvous._agent_has_failed()


@pytest.mark.parametrize("code, how", [(3, "with exit code 3"), (-9, "by signal 9")])
def test_the_first_worker_that_failed_is_named(network, code, how):
    def failure(code, at):
        return types.SimpleNamespace(exitcode=code, timestamp=at)

    class Agent:
        _worker_group = types.SimpleNamespace()

        def run(self, shut_down):
            run_result = types.SimpleNamespace(failures={0: failure(1, 8), 2: failure(code, 7)})
            return self._shutdown(shut_down), run_result

        def _shutdown(self, shut_down):
            shut_down(None)

    member = FakeMember(alone(1))
    handler = core(network, member)
    handler.enter()
    Agent().run(handler.shut_down)
    assert member.left == [("failed", f"worker 2 ended {how}")]
    error = RuntimeError("train.py FAILED")
    error.failures = {1: failure(code, 5)}
    assert _rendezvous._failed_worker(error) == f"worker 1 ended {how}"


def test_closing_is_leaving(network):
    member = FakeMember(alone(1))
    handler = core(network, member)
    handler.enter()
    handler.close()
    handler.close()
    assert handler.is_closed()
    assert member.left == [("left", "the rendezvous was closed")]
    handler.shut_down(None)
    assert len(member.left) == 1
