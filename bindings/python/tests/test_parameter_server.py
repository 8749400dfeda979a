"""The parameter server: interleavings with stepped objects, in this process."""

import itertools
import pathlib
import pickle
import random
import socket
import time
import types

import pytest
import torch

import syncd
import syncd.torch as st
from syncd._private import write_private
from server_parts import (
    SECRET,
    Gate,
    Stepped,
    attached,
    hello,
    in_thread,
    model_of,
    parameters_of,
    serving,
)
from syncd.torch._compat import note_step
from syncd.torch._link import Link, NotFinite, Place
from syncd.torch._parameters import Ledger, describe_optimizer, describe_options
from syncd.torch._server import ServerJob, _shown
from syncd.torch._wire import accept_peer, introduce, receive, send
from syncd.torch.server import Server, _listen, load_secret


@pytest.fixture
def gate():
    Stepped.gate = Gate()
    yield Stepped.gate
    gate, Stepped.gate = Stepped.gate, None
    gate.go.release(1000)


def ones(model):
    return [torch.ones_like(one) for one in model.parameters()]


def push(parameters, nonce, sequence, model, life=None):
    options = [{"lr": 1.0}]
    present = b"\1" * len(parameters.views)
    life = parameters.life if life is None else life
    return parameters.push(nonce, sequence, life, ones(model), present, options)


def values(parameters):
    return [one[0].item() for one in parameters.views]


OPTIMIZERS = {
    "SGD": {"lr": 0.1, "momentum": 0.9, "nesterov": True},
    **{name: {} for name in ("Adam", "AdamW", "Adagrad", "RMSprop", "NAdam", "Adadelta", "Rprop")},
    **{name: {} for name in ("ASGD", "Adamax", "RAdam")},
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_steps_as_it_would_in_the_worker(name):
    """Two groups, a rate that is changed, and a snapshot in between from which another server goes on."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Linear(7, 3))
    groups = [
        {"params": [model[0].weight, model[1].bias]},
        {"params": [model[1].weight], "lr": 0.02},
    ]
    optimizer = getattr(torch.optim, name)(
        groups, **OPTIMIZERS[name]
    )  # model[0].bias is in no group
    parameters = parameters_of(model, optimizer, shards=2)
    for sequence in range(1, 6):
        for one in model.parameters():
            one.grad = torch.randn_like(one)
        if sequence == 3:
            optimizer.param_groups[0]["lr"] *= 0.5
            snapshot = parameters.snapshot()
            for one, value in zip(model.state_dict(), parameters.views):
                assert torch.equal(snapshot["values"][one], value)
            parameters = parameters_of(model, begun=snapshot, shards=2)
        gradients = [one.grad.clone() for one in model.parameters()]
        present, options = b"\1\1\1\1", describe_options(optimizer)
        assert (
            parameters.push("a", sequence, parameters.life, gradients, present, options)
            == "applied"
        )
        optimizer.step()
        for here, there in zip(model.parameters(), parameters.views):
            assert torch.equal(here, there)
    assert parameters.updates == 5


def test_a_parameter_without_a_gradient_is_not_changed():
    model = model_of(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0, weight_decay=0.5)
    parameters = parameters_of(model, optimizer)
    parameters.push("a", 1, parameters.life, ones(model), b"\1\0", describe_options(optimizer))
    assert values(parameters) == [-1, 0]


class Local(torch.optim.SGD):
    pass


class NeedsClosure(torch.optim.Optimizer):
    def step(self, closure):
        ...


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda p: torch.optim.LBFGS(p), "LBFGS.* evaluates the model"),
        (lambda p: torch.optim.SparseAdam(list(p)), "SparseAdam.* use Adam"),
        (lambda p: NeedsClosure(p, {}), "NeedsClosure.* evaluates the model"),
        (
            lambda p: type("Inner", (Local,), {"__qualname__": "f.<locals>.Inner"})(p, 0.1),
            "Inner.* imported",
        ),
        (
            lambda p: torch.optim.SGD([*p, torch.nn.Parameter(torch.ones(3, 1))], 0.1),
            r"shape \[3, 1\]",
        ),
        (
            lambda p: Local([{"params": p, "how": object()}], 0.1),
            "option how cannot be sent.* object",
        ),
    ],
)
def test_an_optimizer_that_cannot_run_there_is_refused_by_name(make, message):
    model = model_of(2)
    with pytest.raises(syncd.Invalid, match=message):
        describe_optimizer(model, make(model.parameters()))


def test_an_optimizer_whose_step_fails_is_named_to_every_worker():
    model = model_of(2)
    parameters = parameters_of(model, Stepped(model.parameters(), 1.0))
    for _ in range(2):
        with pytest.raises(
            syncd.Error, match="step of Stepped on the server raised ValueError: not lr"
        ):
            parameters.shards[0].optimizer.step = lambda: (_ for _ in ()).throw(
                ValueError("not lr")
            )
            push(parameters, "a", 1, model)


# ---- Exactly once, whole updates, lives


def test_an_update_that_comes_again_is_applied_once():
    model = model_of(4, 4)
    parameters = parameters_of(model, shards=2)
    assert [push(parameters, "a", 1, model) for _ in range(3)] == ["applied"] * 3
    push(parameters, "b", 1, model)  # another sender's
    push(parameters, "a", 2, model)
    push(parameters, "a", 1, model)  # late, over an old connection
    assert values(parameters) == [-3, -3]
    assert parameters.updates == 3


def test_an_update_that_comes_again_while_it_is_applied_waits_for_it(gate):
    model = model_of(4, 4)
    parameters = parameters_of(model, Stepped(model.parameters(), 1.0), shards=2)
    first = in_thread(lambda: push(parameters, "a", 1, model))
    gate.arrived.acquire()
    gate.arrived.acquire()  # both shards are half done
    again = in_thread(lambda: (push(parameters, "a", 1, model), values(parameters)))
    gate.go.release(2)
    assert first() == "applied"
    assert again() == ("applied", [-2, -2])
    assert gate.arrived.acquire(timeout=0) is False  # no second step


def test_updates_of_another_life_are_dropped_and_counted_once():
    model = model_of(4)
    parameters = parameters_of(model)
    assert [push(parameters, "a", 1, model, life=5) for _ in range(2)] == ["dropped"] * 2
    assert push(parameters, "a", 2, model) == "applied"
    assert values(parameters) == [-1]
    assert (parameters.updates, parameters.dropped_updates) == (1, 1)


def test_a_snapshot_is_cut_between_two_updates():
    """It is asked for when shard 0 has applied an update, and shard 1 has not begun it."""
    model = model_of(4, 4)
    parameters = parameters_of(model, shards=2)
    with parameters.shards[1].lock:
        pushing = in_thread(lambda: push(parameters, "a", 1, model))
        while parameters.counters[1] != 2:
            time.sleep(0)
        snapshot = in_thread(parameters.snapshot)
        while parameters.shards[
            1
        ].tasks.empty():  # the update is taken from it, the snapshot waits in it
            time.sleep(0)
        assert values(parameters) == [-1, 0]
    assert pushing() == "applied"
    found = snapshot()
    assert [one[0].item() for one in found["values"].values()] == [-1, -1]
    assert (found["updates"], found["sequences"]) == (1, {"a": 1})


def test_a_server_that_begins_again_from_its_checkpoint():
    """Exactly once holds over it, and what is lost is counted by those who know, once."""
    model, ledger = model_of(4), Ledger()
    old = parameters_of(model, ledger=ledger)
    push(old, "a", 1, model)
    snapshot = old.snapshot()
    push(old, "a", 2, model)
    push(old, "b", 1, model)
    for known in (ledger, None):  # None: it begins on another machine, and only the workers know
        new = parameters_of(model_of(4, value=-1.0), begun=snapshot, ledger=known)
        assert new.life != old.life
        assert new.lost_updates == (2 if known else 0)
        new.told("a", 2)
        new.told("b", 1)
        new.told("b", 1)  # it connects again
        assert new.lost_updates == 2
        assert push(new, "a", 1, model) == "applied"  # is in the checkpoint
        assert push(new, "a", 3, model, life=old.life) == "dropped"
        assert values(new) == [-1] and new.updates == 1
        assert push(new, "b", 2, model) == "applied"
        assert values(new) == [-2]
        third = parameters_of(model_of(4), begun=new.snapshot(), ledger=Ledger())
        assert third.lost_updates == 2
    fresh = parameters_of(model, ledger=ledger)  # another training in the same place
    assert fresh.lost_updates == 0


# ---- Over connections


def end_of(server, link, nonce):
    """Its worker dies; the server has seen it."""
    connection = next(one for one in server._attached if one.nonce == nonce)
    link.close()
    connection.join(60)
    assert not connection.is_alive()


@pytest.mark.parametrize("shared", [True, False])
def test_pull_and_push(shared):
    """By both ways: large and small parameters, empty ones, of several types."""
    torch.manual_seed(0)
    model = torch.nn.ParameterDict(
        {
            "a_small": torch.randn(3),
            "a_large": torch.randn(1 << 18),
            "a_half": torch.randn(7).to(torch.bfloat16),
            "a_empty": torch.empty(0, 4),
            "a_transposed": torch.randn(600, 500).t(),
            "a_double": torch.randn(5, dtype=torch.float64),
            "a_unused": torch.randn(2),
            "a_number": torch.tensor(2.0),
        }
    )
    parameters = list(model.parameters())
    copies = [torch.nn.Parameter(torch.empty_like(one)) for one in parameters]
    with serving() as (server, place):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        link = attached(place, model, optimizer, shared, shards=3)
        assert len(server.parameters.shards) == 3
        link.pull(copies)
        for one, copy in zip(parameters, copies):
            assert torch.equal(one, copy)
        gradients = [torch.randn_like(one) for one in parameters]
        names = [name for name, _ in model.named_parameters()]
        gradients[names.index("a_unused")] = None
        gradients[names.index("a_small")] = torch.randn(6)[::2]  # not contiguous
        outcome = link.push(1, link.news["life"], gradients, describe_options(optimizer))
        assert outcome == "applied"
        link.pull(copies)
        for one, copy, gradient in zip(parameters, copies, gradients):
            expected = one if gradient is None else one - 0.5 * gradient
            assert torch.allclose(copy, expected)
        link.close()


@pytest.mark.parametrize("shared", [True, False])
def test_sparse_gradients_are_sent_dense(shared):
    model = torch.nn.Embedding(5, 3, sparse=True)
    with serving() as (_, place):
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        link = attached(place, model, optimizer, shared)
        before = model.weight.detach().clone()
        model(torch.tensor([1, 3, 3])).sum().backward()
        assert model.weight.grad.is_sparse
        link.push(1, link.news["life"], [model.weight.grad], describe_options(optimizer))
        link.pull([model.weight])
        assert (before - model.weight)[:, 0].tolist() == pytest.approx([0, 1, 0, 2, 0])
        link.close()


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_of_an_update_that_is_not_finite_nothing_is_applied(shared, value):
    model = model_of(1 << 18, 4, 1 << 18)
    gradients = ones(model)
    gradients[2][-1] = value
    with serving() as (server, place):
        link = attached(place, model, shared=shared, nonce="a")
        with pytest.raises(NotFinite) as caught:
            link.push(1, link.news["life"], gradients, [{}])
        assert caught.value.at == 2
        huge = [torch.full_like(one, 3e38) for one in gradients]  # finite, and its sum is not
        link = attached(place, model, shared=shared, nonce="a", fresh=False)
        assert link.push(1, link.news["life"], huge, [{"lr": 0.0}]) == "applied"
        assert values(server.parameters) == [0, 0, 0] and server.parameters.updates == 1
        link.close()


@pytest.mark.parametrize("shared", [True, False])
def test_a_push_whose_answer_is_lost(shared, gate):
    """The connection breaks while the update is applied, and the worker sends it again over another one."""
    model = model_of(4)
    with serving() as (server, place):
        optimizer = Stepped(model.parameters(), lr=1.0)
        link = attached(place, model, optimizer, shared, nonce="a")
        first = in_thread(lambda: link.push(1, link.news["life"], ones(model), [{}]))
        gate.arrived.acquire()
        link._peer.shutdown(socket.SHUT_RDWR)
        with pytest.raises((EOFError, OSError)):
            first()
        again = attached(place, model, optimizer, shared, nonce="a", fresh=False)
        pushing = in_thread(lambda: again.push(1, link.news["life"], ones(model), [{}]))
        gate.go.release(2)
        assert pushing() == "applied"
        assert values(server.parameters) == [-2] and server.parameters.updates == 1
        again.close()


def test_parts_of_an_update_whose_sender_dies_are_not_applied():
    """By TCP all but the last byte has come; by shared memory the gradients lie there, without the word."""
    model = model_of(1 << 16, 1 << 16)
    with serving() as (server, place):
        stays = attached(place, model, shards=2)
        for shared in (False, True):
            dies = attached(place, model, shared=shared, nonce="dies")
            if shared:
                dies._stage(range(2), ones(model))
            else:
                send(dies._peer, ("push", 1, dies.news["life"], b"\1\1", [{}]))
                dies._peer.sendall(memoryview(dies._segment)[:-1])
            end_of(server, dies, "dies")
        assert stays.push(1, stays.news["life"], ones(model), [{}]) == "applied"
        assert values(server.parameters) == [-1, -1] and server.parameters.updates == 1
        stays.close()


@pytest.mark.parametrize("shared", [True, False])
def test_a_pull_never_sees_half_an_update(shared, gate):
    """The update is half done in the shared memory when the pull comes."""
    model = model_of(4)
    with serving() as (server, place):
        optimizer = Stepped(model.parameters(), lr=1.0)
        pusher = attached(place, model, optimizer, shared)
        reader = attached(place, model, optimizer, shared)
        pushing = in_thread(lambda: pusher.push(1, pusher.news["life"], ones(model), [{}]))
        gate.arrived.acquire()
        assert values(server.parameters) == [-1]  # half of it
        copy = [torch.zeros(4)]
        pulling = in_thread(lambda: reader.pull(copy))
        gate.go.release()
        pushing()
        pulling()
        assert copy[0].tolist() == [-2] * 4
        pusher.close()
        reader.close()


class Tearing:
    """A tensor to pull into: while it is read for the first time, an update is applied."""

    def __init__(self, tensor, update):
        self.tensor, self.update = tensor, update

    def copy_(self, source):
        self.tensor[:2].copy_(source[:2])
        update, self.update = self.update, lambda: None
        update()
        self.tensor[2:].copy_(source[2:])


def test_a_pull_that_an_update_has_overtaken_begins_again():
    model = model_of(4)
    with serving() as (_, place):
        pusher, reader = attached(place, model), attached(place, model)
        torn = Tearing(
            torch.zeros(4), lambda: pusher.push(1, pusher.news["life"], ones(model), [{}])
        )
        reader.pull([torn])
        assert torn.tensor.tolist() == [-1] * 4
        pusher.close()
        reader.close()


def test_a_shard_that_has_changed_while_it_was_sent_is_sent_again():
    """By TCP: two workers push when the server has begun to send a shard and cannot have ended yet."""
    model = model_of(1 << 22, 1 << 22)  # each more than the sockets' buffers take
    copies = [torch.zeros(1 << 22) for _ in range(2)]
    with serving() as (server, place):
        pushers = [attached(place, model, nonce=nonce, shards=2) for nonce in "ab"]
        reader = attached(place, model, shared=False)
        reader._peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)  # it grows no more
        receive_shard, sequence = reader._receive, 0

        def overtaken(shard, parameters):
            nonlocal sequence
            sequence += 1
            assert reader._peer.recv(1, socket.MSG_PEEK)
            pushing = [
                in_thread(lambda one=one: one.push(sequence, one.news["life"], ones(model), [{}]))
                for one in pushers
            ]
            assert [one() for one in pushing] == ["applied"] * 2
            receive_shard(shard, parameters)

        reader._receive = overtaken
        for pulls in range(1, 3):
            reader.pull(copies)
            for shard, one in enumerate(copies):
                assert torch.equal(one, torch.full_like(one, -4.0 * pulls + 2 - 2 * shard))
        reader._receive = receive_shard
        reader.pull(copies)  # nothing is left on the way
        assert [one[0].item() for one in copies] == values(server.parameters) == [-8, -8]
        for one in (*pushers, reader):
            one.close()


# ---- Who takes part


def test_a_new_process_takes_the_parameters_only_of_a_training_that_goes_on():
    model, other = model_of(4), model_of(4, value=5.0)
    with serving() as (server, place):
        assert Link(place, hello(model)).state == "empty"  # and goes, as it is not worker 0
        first = attached(place, model, nonce="first")
        second = attached(place, other, nonce="second")
        first.push(1, first.news["life"], ones(model), [{}])
        second.pull(list(other.parameters()))
        assert other[0].tolist() == [-1] * 4
        life = server.parameters.life
        end_of(server, first, "first")
        end_of(server, second, "second")
        # A worker that had only lost its connection goes on; another process does not.
        again = attached(place, model, nonce="first", fresh=False)
        assert again.news["life"] == life and again.news["updates"] == 1
        end_of(server, again, "first")
        assert Link(place, hello(model)).state == "empty"
        third = attached(place, model_of(4, value=7.0), nonce="third")
        assert third.news["life"] != life and values(server.parameters) == [7]
        third.close()


def test_an_optimizer_that_the_server_does_not_have_is_named():
    model = model_of(4)
    with serving() as (server, place):
        link = Link(place, hello(model))
        begun = describe_optimizer(model, torch.optim.SGD(model.parameters(), lr=1.0))
        with pytest.raises(
            syncd.Invalid, match="optimizer Best of module nowhere is not where the server"
        ):
            link.bring({**begun, "class": "nowhere:Best"}, list(model.parameters()), None)
        assert server.parameters is None


def test_a_later_launch_takes_the_place_of_the_one_before():
    model = model_of(4)
    with serving() as (server, place):
        old = attached(place, model, launch=("run", 1))
        new = attached(place, model_of(4, value=3.0), launch=("run", 2))
        with pytest.raises((EOFError, OSError)):
            old.pull(list(model.parameters()))
            old.push(1, old.news["life"], ones(model), [{}])
        late = Link(place, hello(model, launch=("run", 1)))
        assert late.state == "refused" and "launch run/2 has taken the place of run/1" in late.text
        assert values(server.parameters) == [3]
        new.close()


def test_a_worker_of_another_job_is_refused():
    """Whether it is new or comes back; where none trains any more a new job may begin."""
    model = model_of(4)
    with serving() as (server, place):
        first = attached(place, model, nonce="first", identity="mf")
        for fresh in (True, False):
            # A later launch, which would take the place of an earlier one of its own job.
            stranger = Link(place, hello(model, fresh=fresh, identity="gan", launch=("", 1)))
            assert stranger.state == "refused"
            assert "it trains another job now: mf, and this worker is of gan;" in stranger.text
        first.push(1, first.news["life"], ones(model), [{}])
        end_of(server, first, "first")
        second = attached(place, model_of(4, value=3.0), nonce="second", identity="gan")
        assert values(server.parameters) == [3]
        assert Link(place, hello(model, "first", fresh=False, identity="mf")).state == "refused"
        second.close()


def test_of_two_jobs_that_bring_parameters_at_once_the_second_is_refused():
    model = model_of(4)
    begun = describe_optimizer(model, torch.optim.SGD(model.parameters(), lr=1.0))
    with serving() as (_, place):
        links = [Link(place, hello(model, identity=name)) for name in ("mf", "gan")]
        for one in links:
            one.bring(begun, list(model.parameters()), None)
        assert [one.state for one in links] == ["ready", "refused"]
        links[0].close()


def test_whose_server_a_worker_0_finds_again(tmp_path, monkeypatch):
    """By the daemon that is connected, the job's name and the launch: not by how they are written."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    for name in ("SYNCD_ADDR", "SYNCD_JOB", "SYNCD_LAUNCH", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")

    def job(address="unix:/a", name=None, port="1", run_id="none"):
        monkeypatch.setenv("MASTER_PORT", port)
        monkeypatch.setenv("TORCHELASTIC_RUN_ID", run_id)
        found = job_of(model_of(4), None, job=name, address="auto")
        found._client = types.SimpleNamespace(address=address)
        return found

    with serving() as (_, place):
        mine = job()
        place = place._replace(identity=mine._own_identity())
        write_private(pathlib.Path(f"{mine._files()}.json"), _shown(place))
        assert job()._noted_place() == job(name="default")._noted_place() == place
        for other in ({"address": "unix:/b"}, {"name": "b"}, {"port": "2"}, {"run_id": "b"}):
            assert job(**other)._noted_place() is None
        monkeypatch.setenv("SYNCD_JOB", "b")
        assert job(name="default")._noted_place() is None


def test_the_identity_of_a_job_on_a_server_by_hand(tmp_path, monkeypatch):
    for name in ("SYNCD_JOB", "RANK", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "MASTER_ADDR"):
        monkeypatch.delenv(name, raising=False)
    write_private(tmp_path / "secret", "ab" * 32)

    def identity(launch, **options):
        monkeypatch.setenv("SYNCD_LAUNCH", launch)
        model = model_of(4)
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        options = {"server": "here:1", "server_secret": tmp_path / "secret", **options}
        return st.run("asp", model, optimizer=optimizer, **options)._given.identity

    assert identity("a/1", job="mf") == identity("b/1", job="mf") != identity("a/1", job="gan")
    assert identity("a/1") == identity("a/2") != identity("b/1")


@pytest.mark.parametrize(
    "other, message",
    [
        (
            model_of(4, 5),
            r"parameter 1 has shape \[5\] and type float32 here, and \[2\] and float32 on",
        ),
        (model_of(4), "the server has a parameter 1, and this worker none of that name"),
        (model_of(4, 2, 1), "this worker has a parameter 2, and the server none"),
        (torch.nn.ParameterList([torch.zeros(4), torch.zeros(2).half()]), "float16 here"),
    ],
)
def test_another_model_is_refused_by_name(other, message):
    model = model_of(4, 2)
    with serving() as (_, place):
        link = attached(place, model)
        refused = Link(place, hello(other))
        assert refused.state == "refused"
        with pytest.raises(AssertionError, match=message + ".*; allowed: the same model in every worker"):
            raise AssertionError(refused.text)
        with pytest.raises(syncd.Invalid, match=f"job job, worker 0, server {place}: .*{message}"):
            job_of(other, place).pull()
        link.close()


def groups_of(model, *groups):
    values = list(model.parameters())
    return torch.optim.SGD([{"params": [values[at] for at in group]} for group in groups], lr=1.0)


@pytest.mark.parametrize(
    "make, message",
    [
        (
            lambda model: torch.optim.AdamW(model.parameters()),
            r"the optimizer is torch.optim.adamw:AdamW here, and torch.optim.sgd:SGD on the server",
        ),
        (lambda m: groups_of(m, [0, 1, 2]), "has 1 parameter groups here, and 2 on the server"),
        (lambda m: groups_of(m, [0], [1, 2]), "has parameter 1 in group 1 here, and 0 on the ser"),
        (lambda m: groups_of(m, [0, 1], [2]), "has parameter 2 in group 1 here, and none on the"),
    ],
)
def test_another_optimizer_is_refused_by_name(make, message):
    model = model_of(4, 2, 1)
    begun = groups_of(model, [0, 1], [2])
    if "none" in message:
        begun.param_groups[1]["params"] = []
    with serving() as (_, place):
        link = attached(place, model, begun)
        refused = Link(place, hello(model, optimizer=make(model)))
        assert refused.state == "refused"
        with pytest.raises(AssertionError, match=message):
            raise AssertionError(refused.text)
        link.close()


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize(
    "options, message",
    [
        ([], "1 parameters in 0 groups; allowed: 1 in 1"),
        ([{"lr": "fast"}], r"option lr='fast' of parameter group 0; allowed: a finite number"),
        ([{"lr": float("nan")}], "option lr=nan of parameter group 0"),
        ([{"betas": (0.9,)}], r"option betas=\(0.9,\) of parameter group 0; allowed: 2 values"),
        ([{"betas": (0.9, 1.5)}], "allowed: numbers from 0, below 1"),
        ([{"amsgrad": 3}], "allowed: True or False"),
    ],
)
def test_options_that_the_optimizer_cannot_take_hurt_no_other_worker(shared, options, message):
    model = model_of(4)
    optimizer = torch.optim.Adam(model.parameters(), lr=1.0)
    with serving() as (server, place):
        good = attached(place, model, optimizer)
        bad = attached(place, model, optimizer, shared, nonce="bad")
        with pytest.raises(syncd.Invalid, match=message):
            bad.push(1, bad.news["life"], ones(model), options)
        assert server.parameters.updates == 0 and not server.parameters.failure
        fine = describe_options(optimizer)
        for one in (good, bad):  # the same number as the update that was refused
            assert one.push(1, one.news["life"], ones(model), fine) == "applied"
        assert server.parameters.updates == 2
        good.close()
        bad.close()


def test_what_the_server_says_names_the_worker():
    """An optimizer that it does not have, or whose step fails; another secret."""
    model = model_of(4)
    with serving() as (server, place):
        job = job_of(model, place)
        job._begun = {**job._begun, "class": "nowhere:Best"}
        who = f"job job, worker 0: the parameter server at {place}"
        with pytest.raises(syncd.Invalid, match=f"{who}: optimizer Best of module nowhere is not where"):
            job.pull()
        job = job_of(model, place)
        job.pull()
        server.parameters.shards[0].optimizer.step = lambda: model[7]
        with pytest.raises(syncd.Error, match=f"{who}: the step of SGD on the server raised IndexError.*Allowed"):
            model[0].sum().backward()
            job.push()
        job._closed()
        with pytest.raises(syncd.Error, match=f"{who} has another secret") as caught:
            job_of(model, place._replace(secret=b"x" * 32)).pull()
        assert caught.value.code == syncd.Status.E_AUTH


@pytest.mark.parametrize("given", ["here", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:70000", "192.0.2.1:0"])
def test_an_address_at_which_no_server_can_listen_is_named(given):
    with pytest.raises(syncd.Invalid, match=f"--listen {given}.*; allowed: "):
        _listen(given)


def test_a_port_that_is_taken_is_named(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as other:
        place = Place("127.0.0.1", other.getsockname()[1], SECRET)
        with pytest.raises(syncd.Invalid, match=f"--listen {place}: Address already in use.*; allowed: .* or 0"):
            _listen(str(place))
        # Worker 0 begins its server again, and another program has the port meanwhile.
        job = job_of(model_of(4), None)
        job._own_place, job._fresh, job._saver = place, False, object()
        monkeypatch.setattr(job, "_hosts", lambda: ("127.0.0.1", "127.0.0.1"))
        assert "cannot begin again there: Address already in use" in job._check_may_return(
            place, ConnectionRefusedError()
        )
    assert job._check_may_return(place, ConnectionRefusedError()) == ""
    assert job._listener.getsockname()[1] == place.port
    job._listener.close()


def test_who_does_not_know_the_secret_reads_and_writes_nothing():
    model = model_of(4)
    with serving() as (server, place):
        link = attached(place, model)
        with pytest.raises(syncd.Error, match="has another secret than this worker") as caught:
            Link(place._replace(secret=b"x" * 32), hello(model))
        assert caught.value.code == syncd.Status.E_AUTH
        with socket.create_connection(place[:2]) as stranger:
            assert len(stranger.recv(32, socket.MSG_WAITALL)) == 32
            stranger.sendall(bytes(64))
            assert stranger.recv(32, socket.MSG_WAITALL) == bytes(32)
            assert stranger.recv(1) == b""
        assert len(server._attached) == 1
        link.close()


def test_a_server_that_does_not_know_the_secret_is_not_believed():
    ours, theirs = socket.socketpair()
    heard = in_thread(lambda: accept_peer(theirs, b"another" * 5))
    with pytest.raises(syncd.Error, match="another secret"):
        introduce(ours, SECRET, "here")
    assert heard() is False
    ours, theirs = socket.socketpair()
    heard = in_thread(lambda: accept_peer(theirs, SECRET))
    introduce(ours, SECRET, "here")
    assert heard() is True


def test_a_proof_that_was_overheard_serves_for_no_other_connection():
    ours, theirs = socket.socketpair()
    heard = in_thread(lambda: accept_peer(theirs, SECRET))
    challenge = ours.recv(32, socket.MSG_WAITALL)
    said = []

    class Overheard:
        recv_into = staticmethod(lambda view, *_: (view.__setitem__(slice(None), challenge), 32)[1])
        sendall = staticmethod(said.append)

    with pytest.raises(syncd.Error):  # its own second question gets the first answer
        introduce(Overheard, SECRET, "here")
    ours.sendall(said[0])
    assert heard() is True
    ours, theirs = socket.socketpair()
    heard = in_thread(lambda: accept_peer(theirs, SECRET))
    ours.sendall(said[0])
    assert heard() is False


class Evil:
    ran = False

    def __reduce__(self):
        return setattr, (Evil, "ran", True)


def sent(message):
    ours, theirs = socket.socketpair()
    send(ours, message)
    ours.close()
    return receive(theirs)


@pytest.mark.parametrize(
    "value", [Evil(), print, torch.storage._load_from_bytes, torch.float32, random.Random()]
)
def test_a_message_runs_nothing(value):
    with pytest.raises(pickle.UnpicklingError):
        sent({"class": [value]})
    assert not Evil.ran


def test_a_message_brings_values_and_tensors():
    plain = {"a": [1, 2.5, None, True, b"x", (1, ("b", -(1 << 70)))], 3: float("inf")}
    assert sent(plain) == plain
    for one in (
        torch.randn(3, 4).t(),
        torch.tensor(2.0),
        torch.empty(0, 3),
        torch.tensor([True, False]),
        torch.randn(3).to(torch.bfloat16),
        torch.randn(3, dtype=torch.complex64),
        torch.randn(9)[3:5],
        torch.nn.Parameter(torch.ones(2)),
    ):
        found = sent(("state", {"x": one}))[1]["x"]
        assert found.dtype == one.dtype and found.shape == one.shape and torch.equal(found, one)


def test_what_is_no_optimizer_is_not_made():
    model = model_of(4)
    begun = describe_optimizer(model, torch.optim.SGD(model.parameters(), lr=1.0))
    with pytest.raises(syncd.Invalid, match="Popen of module subprocess is no torch.optim.Opt"):
        parameters_of(model, begun={**begun, "class": "subprocess:Popen"})


def test_files_are_private(tmp_path):
    path = tmp_path / "secret"
    write_private(path, "ab" * 32)
    assert path.stat().st_mode & 0o777 == 0o600
    assert load_secret(path) == b"\xab" * 32
    path.chmod(0o640)
    with pytest.raises(syncd.Error, match="lets others read it"):
        load_secret(path)


def test_the_server_ends_without_workers():
    model = model_of(4)
    Server(socket.create_server(("127.0.0.1", 0)), SECRET, idle=0.01).serve()
    with serving(idle=1000.0) as (server, place):
        link = attached(place, model)
        assert server._attached
        connection = next(iter(server._attached))
        link.say_goodbye()
        connection.join(60)
        assert server._ends_at - time.monotonic() < 10
        link.close()


# ---- The job


class Told:
    """A worker that notes what it is told, with advice to begin again at some questions."""

    job, rank, policy = "job", 0, "specsync+asp"

    def __init__(self, advised_at=()):
        self.questions, self.advised_at, self.calls = 0, advised_at, []

    def mark(self):
        self.calls.append("mark")

    def should_resync(self):
        self.questions += 1
        return self.questions in self.advised_at

    def restarted(self):
        self.calls.append("restarted")

    def push(self, loss, samples, size):
        self.calls.append(("push", loss, samples, size))
        return syncd.Pushed(0, False)

    def leave(self, kind):
        if self.calls and self.calls[-1][0] == "leave":
            raise syncd.Closed("it has left", syncd.Status.E_CLOSED)
        self.calls.append(("leave", kind))


def job_of(model, place, policy="asp", worker=None, **options):
    optimizer = options.pop("optimizer", None) or torch.optim.SGD(model.parameters(), lr=1.0)
    job = st.run(policy, model, optimizer=optimizer, **options)
    job.worker = worker or Told()
    job._given = place
    job.iteration = 0
    return job


class Among(Told):
    """Worker 1, among members with these states."""

    rank = 1

    def __init__(self, *states):
        super().__init__()
        self.states = list(states)

    def members(self):
        members = [syncd.Member(at, state, 0, "", "", b"") for at, state in enumerate(self.states)]
        return syncd.Members(0, tuple(members))


def test_the_wait_for_the_parameters_of_a_worker_0_that_has_gone_is_bounded():
    """Until it comes again: a group that is started again need not come in order."""
    left, active = syncd.MemberState.LEFT, syncd.MemberState.ACTIVE
    model, late, worker = model_of(4), model_of(4, value=9.0), Among(left, active)
    with serving() as (server, place):
        job = job_of(late, place, worker=worker, server_timeout=0.2)
        gone = "waits for worker 0; worker 0 has finished or left: start it, too"
        with pytest.raises(syncd.Unreachable, match=f"{place} {gone}.; wait longer"):
            job.pull()
        first = attached(place, model, nonce="first")
        first.push(1, first.news["life"], ones(model), [{}])
        end_of(server, first, "first")
        with pytest.raises(syncd.Unreachable, match=gone):  # and takes nothing of the group before
            job.pull()
        worker.states[0] = active
        asked = in_thread(job.pull)
        again = attached(place, model_of(4, value=3.0), nonce="again")
        asked()
        assert late[0].tolist() == [3] * 4
        again.close()
        job._closed()


def step_of(iteration=0, pull=False, skip=False):
    return syncd.Step(iteration, pull, False, skip, False, 0)


def test_a_job_pulls_where_the_step_says_and_pushes_what_it_computed():
    model, other = model_of(4), model_of(4, value=9.0)
    with serving() as (server, place):
        job = job_of(model, place)
        job.pull()
        peer = attached(place, other)
        peer.push(1, peer.news["life"], ones(other), [{}])
        job._granted(step_of())
        assert model[0].tolist() == [0] * 4
        job._granted(step_of(pull=True))
        assert model[0].tolist() == [-1] * 4
        peer.push(2, peer.news["life"], ones(other), [{}])
        job._granted(step_of(skip=True))
        assert model[0].tolist() == [-2] * 4
        loss = model[0].sum() * 2
        loss.backward()
        job.optimizer.param_groups[0]["lr"] = 0.5
        job.push(loss, samples=3)
        assert model[0].grad is None
        saved = job._saved()
        assert saved["model"]["0"].tolist() == [-3] * 4
        assert "values" not in saved["form"] and saved["form"]["updates"] == 3
        model[0].data.fill_(0)
        assert job.worker.calls == ["mark", ("push", -16.0, 3, 16)]
        assert values(server.parameters) == [-3]
        job._closing(None)
        assert model[0].tolist() == [-3] * 4
        job._closed()
        peer.close()


def test_who_finishes_waits_for_the_others_and_takes_their_last_updates():
    """A pull at the end alone would miss what the others still send. Two that finish do not wait for each other,
    and one that is lost is not waited for."""
    first, second, model = model_of(4), model_of(4), model_of(4)
    with serving() as (server, place):
        jobs = [job_of(one, place) for one in (first, second)]
        for job in jobs:
            job.pull()
        trains, dies = attached(place, model, nonce="trains"), attached(place, model, nonce="dies")
        finishing = [in_thread(job.finish) for job in jobs]
        while sum(one.has_finished for one in server._attached) < 2:
            time.sleep(0)
        dies.push(1, dies.news["life"], ones(model), [{}])
        end_of(server, dies, "dies")
        trains.push(1, trains.news["life"], ones(model), [{}])
        assert first[0].tolist() == [0] * 4
        trains.say_goodbye()
        for job, done in zip(jobs, finishing):
            done()
            assert job.model[0].tolist() == [-2] * 4
            with pytest.raises(syncd.Error, match=r"push\(\) is called once"):
                job.push()
            assert job.worker.calls == [("leave", "left")]
            job._leave(None)  # the end of the `with` block
        trains.close()


def test_who_finishes_says_once_for_whom_it_waits(monkeypatch, caplog):
    monkeypatch.setattr("syncd.torch._server._SAY_S", 0)
    caplog.set_level("INFO", "syncd")
    model = model_of(4)
    with serving() as (server, place):
        job = job_of(model, place)
        job.pull()
        peers = [attached(place, model_of(4), nonce=str(rank), rank=rank) for rank in (3, 2)]
        finishing = in_thread(job.finish)
        text = "job job, worker 0: finish() waits for the end of worker 2, 3"

        def levels():
            return [one.levelname for one in caplog.records if one.getMessage() == text]

        while len(levels()) < 2:
            time.sleep(0)
        for peer in peers:
            peer.finish()
        finishing()
        assert levels() == ["WARNING", *["INFO"] * (len(levels()) - 1)]
        job._closed()
        for peer in peers:
            peer.close()


def test_who_finishes_connects_again_without_asking_for_members():
    """It has left the job, so the daemon says nothing of members."""
    model = model_of(4)
    with serving() as (server, place):
        job = job_of(model, place)
        job.pull()
        job._given, job.worker.rank, link = None, 1, job._link
        finish, link.finish = link.finish, lambda: link.close() or finish()  # it breaks here
        job.finish()
        assert job._link is not link and job._link.place == place
        job._closed()


def test_a_job_that_is_alone_pulls_what_its_own_updates_have_made():
    model = model_of(4)
    with serving() as (server, place):
        job = job_of(model, place)
        job.pull()
        for rest in (-1, -2):
            model[0].sum().backward()
            job.push()
            job._done = False  # another batch
            job._granted(step_of())  # nobody else has pushed
            assert model[0].tolist() == [rest] * 4
        job._closed()


def test_a_job_pulls_when_the_server_has_begun_another_life():
    model = model_of(4)
    with serving() as (server, place):
        job = job_of(model, place)
        job.pull()
        model[0].sum().backward()
        new = parameters_of(model_of(4, value=6.0))
        server.parameters = new  # as after a restart; the connection breaks
        job._link.close()
        job.push()
        assert job.dropped_updates == 1 and values(new) == [6]
        job._granted(step_of())
        assert model[0].tolist() == [6] * 4
        job._done = False  # another batch
        model[0].sum().backward()
        job.push()
        assert values(new) == [5] and job.dropped_updates == 1
        job._closed()


def test_a_gradient_that_is_not_finite_is_named_with_worker_and_iteration():
    model = torch.nn.Linear(2, 2)
    with serving() as (server, place):
        job = job_of(model, place)
        job.pull()
        job.iteration = 7
        (model(torch.ones(1, 2)).sum() * float("inf")).backward()
        with pytest.raises(
            syncd.Invalid, match="job job, worker 0, iteration 7: the gradient of weight"
        ):
            job.push()
        assert server.parameters.updates == 0 and job.worker.calls == ["mark"]
        for one in model.parameters():
            one.grad = torch.ones_like(one)  # the script may go on
        job.push()
        assert server.parameters.updates == 1
        job._closed()


def test_a_skipped_batch_sends_nothing_and_a_second_push_is_refused(monkeypatch, caplog):
    model = model_of(4)
    with serving() as (server, place):
        job = job_of(model, place)
        steps = map(step_of, itertools.count())
        monkeypatch.setattr(job.worker, "begin", lambda data: next(steps), raising=False)
        job.pull()
        for step, _ in job.steps(iterations=4):
            assert model[0].grad is None
            model[0].sum().backward()
            if step in (1, 2):
                continue
            job.push()
            with pytest.raises(syncd.Error, match="worker 0: push\\(\\) is called once for each batch"):
                job.push()
        assert server.parameters.updates == 2
        pushes = [("push", None, 0, size) for size in (16, 0, 0, 16)]
        assert [one for one in job.worker.calls if one != "mark"] == pushes
        assert [one.message for one in caplog.records] == [
            "job job, worker 0: iteration 1 has ended without push(), as one whose batch is skipped (its "
            "gradients are dropped: step.micro_batches(N) adds up those of several batches); "
            "later ones are not named"
        ]
        job._closed()


def test_resync_begins_the_iteration_again_as_if_nothing_had_been():
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2), torch.nn.Dropout(0.5)
    )
    batch = torch.randn(8, 2)
    with serving() as (server, place):
        job = job_of(model, place, "specsync+asp", Told(advised_at=(2,)))
        job.pull()
        peer = attached(place, model)
        drawn, seen = [], []
        iteration = st.Iteration(job, step_of(), batch)
        buffers = [one.clone() for one in model.buffers()]
        for part in iteration.micro_batches(4):
            if len(seen) in (0, 2):
                for one, before in zip(model.buffers(), buffers):
                    assert torch.equal(one, before)
                assert all(one.grad is None for one in model.parameters())
            if len(seen) == 1:
                changes = [torch.ones_like(one) for one in model.parameters()]
                peer.push(1, peer.news["life"], changes, [{}])
            seen.append(part)
            drawn.append((torch.rand(1).item(), random.random()))
            model(part).sum().backward()
        assert [len(part) for part in seen] == [2] * 6
        assert torch.equal(torch.cat(seen[2:]), batch) and drawn[:2] == drawn[2:4]
        assert job.worker.calls == ["restarted"]
        for one, view in zip(model.parameters(), server.parameters.views):
            assert torch.equal(one, view)  # pulled, with the peer's update
        # Advice that comes later is not followed: push() does not ask.
        questions = job.worker.questions
        job.push()
        assert job.worker.questions == questions
        job._closed()
        peer.close()


@pytest.mark.parametrize("samples", [8, 7, 3])
def test_the_gradients_of_parts_add_up_to_the_batchs(samples):
    torch.manual_seed(0)
    model = torch.nn.Linear(2, 1)
    inputs = torch.randn(samples, 2)
    model(inputs).square().mean().backward()
    whole = model.weight.grad.clone()
    model.weight.grad = None
    parts = list(st.Iteration(job_of(model, None), step_of(), inputs).micro_batches(4))
    assert len(parts) == min(4, samples)
    for x in parts:
        (model(x).square().mean() * len(x) / len(inputs)).backward()
    assert torch.allclose(model.weight.grad, whole)


def test_a_scheduler_of_the_learning_rate_does_not_warn(recwarn):
    model = model_of(4)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    note_step(optimizer)
    scheduler.step()
    assert not recwarn.list and optimizer.param_groups[0]["lr"] == pytest.approx(0.1)


@pytest.mark.parametrize(
    "arguments, options, message",
    [
        (("bsp:1,backup=1",), {"form": "server"}, "cannot take back the updates of backup workers"),
        (("asp",), {"optimizer": None}, "asp without optimizer="),
        (("asp",), {"server": "host"}, "server='host'; allowed: \"host:port\""),
        (("asp",), {"server_timeout": 0}, "server_timeout=0; allowed"),
        (("asp",), {"shards": 0}, "shards=0; allowed"),
        (("asp",), {"outer": 1}, "outer= under asp; options of the form server: server, "),
        (("asp",), {"state": {"epoch": 3}, "checkpoint": "."}, "state\\['epoch'\\] is of type int; allowed"),
        (("asp",), {"state": {"model": torch.nn.Linear(1, 1)}}, "state= without checkpoint="),
    ],
)
def test_arguments_that_are_refused(arguments, options, message):
    model = model_of(4)
    options = {"optimizer": torch.optim.SGD(model.parameters(), lr=1.0), **options}
    with pytest.raises(syncd.Invalid, match=message):
        st.run(*arguments, model, **options)


def test_a_loss_of_several_elements_is_refused_before_anything_is_sent():
    model = model_of(4)
    with serving() as (server, place):
        job = job_of(model, place)
        job.pull()
        with pytest.raises(syncd.Invalid, match="loss of shape .2,.; allowed: a number"):
            job.push(torch.zeros(2))
        assert server.parameters.updates == 0
        job._closed()


def test_a_later_call_of_steps_goes_on_within_the_pass(monkeypatch):
    loader, taken = list(range(7)), []
    with serving() as (_, place):
        job = job_of(model_of(4), place)
        steps = map(step_of, itertools.count())
        monkeypatch.setattr(job.worker, "begin", lambda data: next(steps), raising=False)
        for until in (3, 5, 9):
            for _, batch in job.steps(loader, iterations=until):
                taken.append(batch)
                job.push()
        assert taken == [0, 1, 2, 3, 4, 5, 6, 0, 1]
        # Another loader, and whole passes, begin anew.
        taken.clear()
        for _, batch in job.steps([10, 11, 12], iterations=11):
            taken.append(batch)
            job.push()
        for _, batch in job.steps(loader):
            taken.append(batch)
            job.push()
        assert taken == [10, 11, *loader]
        job._closed()


class Numbered(torch.utils.data.SequentialSampler):
    """Notes the numbers of its passes."""

    def set_epoch(self, number):
        self.passes = [*getattr(self, "passes", []), number]


def test_a_checkpoint_has_what_the_script_names(tmp_path, monkeypatch):
    saved = []

    class Saver:
        def __init__(self, *_, **__): ...

        def load(self):
            return types.SimpleNamespace(state=saved[0], location="here", iteration=3)

    monkeypatch.setattr("syncd.torch._job.Saver", Saver)
    monkeypatch.setattr("syncd.torch._job.on_sigterm", lambda _: None)

    def made(names=("scheduler",)):
        model = model_of(4)
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        state = {name: scheduler for name in names}
        with serving() as (_, place):
            job = job_of(model, place, optimizer=optimizer, checkpoint=tmp_path, state=state)
            job.pull()
            yield job, scheduler
            job._closed()

    for job, scheduler in made():
        scheduler.step()
        scheduler.step()
        saved.append(job._saved())
    for job, scheduler in made():
        job._prepare(3)
        assert scheduler.last_epoch == 2 and scheduler.get_last_lr() == [0.25]
    for job, _ in made(names=()):
        with pytest.raises(syncd.Invalid, match="state= of .'scheduler'.; here: .."):
            job._prepare(3)


@pytest.mark.parametrize("calls", [(3,), (1, 1, 1), (2, None)])
@pytest.mark.parametrize("saved_at, over", [(0, 0), (3, 0), (4, 1), (5, 1), (8, 2), (12, 3)])
def test_epochs_go_on_where_the_checkpoint_was(saved_at, over, calls, monkeypatch):
    """Of three passes of four batches: one within which it was saved begins anew."""

    def trained(before=0):
        """The numbers of the passes of all batches, and what a checkpoint has before each iteration."""
        sampler, done, saved = Numbered(range(4)), [], []
        loader = torch.utils.data.DataLoader(torch.arange(4.0), sampler=sampler)
        with serving() as (_, place):
            job = job_of(model_of(4), place)
            job._passed_before = job._to_pass_over = before
            job._passes = itertools.count(before)

            def begin(data):
                saved.append(job._saved()["passes"])
                return step_of(len(saved) - 1)

            monkeypatch.setattr(job.worker, "begin", begin, raising=False)
            for epochs in calls:
                for _ in job.steps(loader, epochs=epochs):
                    job.push()
                    done.append(sampler.passes[-1])
            job._closed()
        return done, saved

    done, saved = trained()
    assert len(done) == 12 and saved[saved_at] == over
    again, _ = trained(over)
    assert again == [number for number in range(over, 3) for _ in range(4)]


def test_a_server_that_does_not_answer_is_named(gate):
    model = model_of(4)
    with serving() as (_, place):
        optimizer = Stepped(model.parameters(), lr=1.0)
        job = job_of(model, place, optimizer=optimizer, server_timeout=0.2)
        job.pull()
        model[0].sum().backward()
        with pytest.raises(
            syncd.Unreachable, match=f"server at {place} has not answered for 0.2 s"
        ):
            job.push()
        gate.go.release(2)
        job._closed()


def test_an_update_after_one_that_was_not_answered_is_another(gate):
    """Though the server applies the first one late: its answer must not be taken for the second's."""
    model = model_of(4)
    with serving() as (server, place):
        job = job_of(model, place, optimizer=Stepped(model.parameters(), lr=1.0), server_timeout=0.2)
        job.pull()
        for one in model:
            one.grad = torch.ones_like(one)
        with pytest.raises(syncd.Unreachable, match="has not answered"):
            job.push()
        gate.go.release(2)
        job._timeout = 60
        for one in model:
            one.grad = torch.full_like(one, 10.0)
        job.push()
        job.pull()
        assert model[0].tolist() == [-22] * 4  # each steps twice
        assert server.parameters.updates == 2
        job._closed()


def test_a_server_that_is_lost_for_good_is_named():
    model = model_of(4)
    with serving() as (_, place):
        job = job_of(model, place, server_timeout=0.2)
        job.pull()
        where = str(place)
    with pytest.raises(syncd.Unreachable, match=f"{where} has ended, and there is no checkpoint"):
        job.pull()
    job._saver = object()  # with one it may come back: the worker waits
    with pytest.raises(syncd.Unreachable, match=f"no parameter server for 0 s .{where}: "):
        job.pull()
    assert isinstance(job, ServerJob)
