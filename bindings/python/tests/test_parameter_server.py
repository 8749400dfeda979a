"""The parameter server: interleavings with stepped objects, in this process."""

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
    Stepped,
    attached,
    end_of,
    gate,
    hello,
    in_thread,
    job_of,
    model_of,
    ones,
    parameters_of,
    serving,
    values,
)
from syncd.torch._link import Link, NotFinite, Place
from syncd.torch._parameters import Ledger, describe_optimizer, describe_options
from syncd.torch._server import _shown
from syncd.torch._wire import accept_peer, introduce, receive, send
from syncd.torch.server import Server, _listen, load_secret


def push(parameters, nonce, sequence, model, life=None):
    options = [{"lr": 1.0}]
    present = b"\1" * len(parameters.views)
    life = parameters.life if life is None else life
    return parameters.push(nonce, sequence, life, ones(model), present, options)


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
def test_numbers_that_differ_from_their_memory(shared, monkeypatch):
    """torch conjugates and negates by a mark."""
    monkeypatch.setattr("syncd.torch._link._PIECE_BYTES", 16)
    model = torch.nn.ParameterList([torch.zeros(8, dtype=torch.complex64)])
    with serving() as (_, place):
        link = attached(place, model, shared=shared)
        given = torch.full((8,), 1 + 2j).conj()
        assert given.is_conj()
        link.push(1, link.news["life"], [given], [{}])
        link.push(2, link.news["life"], [given.imag.neg() + 0j], [{}])
        link.pull(list(model.parameters()))
        assert model[0].tolist() == [-(1 - 2j) - 2] * 8
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


def test_a_server_waits_for_who_loads_its_parameters():
    model = model_of(4)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    with serving(idle=1000.0) as (server, place):
        gone = Link(place, hello(model), True)
        (connection,) = server._bringing
        server._ends_at = 0.0
        gone.close()
        connection.join(60)
        assert not server._bringing and server._ends_at > time.monotonic(), "it waits for another one"
        link = Link(place, hello(model), True)
        assert link.state == "empty"
        server._wait_for_workers(0.0)
        link.bring(describe_optimizer(model, optimizer), list(model.parameters()), None)
        assert link.state == "ready" and not server._bringing
        link.close()


def test_who_finishes_after_a_servers_loss_waits_for_those_who_trained(monkeypatch):
    model = model_of(4)
    with serving() as (server, place):
        begun = {**describe_optimizer(model, torch.optim.SGD(model.parameters(), lr=1.0)), "workers": [2, 5]}
        first = Link(place, hello(model, fresh=False, rank=0), True)
        first.bring(begun, list(model.parameters()), None)
        second = attached(place, model, fresh=False, rank=2)
        assert first.finish() == [2, 5]
        assert second.finish() == [5], "it has not come to this server yet"
        server._awaited_until = time.monotonic()
        assert first.finish() == [], "it does not come any more"
        for link in (first, second):
            link.close()
