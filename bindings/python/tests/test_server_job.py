"""A job whose parameters are on a server: what a worker sends, takes and says, in this process."""

import itertools
import random
import time
import types

import pytest
import torch

import syncd
import syncd.torch as st
from server_parts import (
    Stepped,
    Told,
    attached,
    end_of,
    gate,
    in_thread,
    job_of,
    model_of,
    ones,
    parameters_of,
    serving,
    step_of,
    values,
)
from syncd.torch._compat import note_step
from syncd.torch._server import ServerJob


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
