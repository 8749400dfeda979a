"""hop and notify_ack in syncd.torch: the order of an iteration and its arithmetic in steps, then processes
that are killed, hang, and start again."""

import re
import signal
import time
import types

import pytest

torch = pytest.importorskip("torch")

import syncd
import syncd.torch as st
from conftest import HERE, PATIENCE_S
from server_parts import in_thread
from syncd.torch._neighbours import NeighbourJob, _Flat, _Rules

HOP = "hop:complete,backup=1"


# ---- Steps


class Worker:
    """Answers as the daemon would; notes what it is asked."""

    rank, job, policy, world_size = 0, "job", "hop", 3

    def __init__(self, calls, updates, given_up=()):
        self.calls, self.updates, self.given_up = calls, updates, given_up

    def _note(self, what, iteration):
        self.calls.append(f"{what} {iteration}")
        if what in self.given_up:
            raise syncd.WrongIteration("iteration 9 is due", syncd.Status.E_WRONG_ITERATION)

    def targets(self, iteration):
        self._note("targets", iteration)
        return [1, 2]

    def push(self, loss, samples, size):
        self._note("push", (loss, samples, size))

    def collect(self, iteration):
        self._note("collect", iteration)
        return self.updates

    def consumed(self, iteration, timeout):
        self._note("consumed", iteration)

    def mark(self):
        self.calls.append("mark")


class Exchange:
    """Holds what others have sent: rank -> the number that fills their model; None: lost."""

    def __init__(self, calls, flat, sent):
        self.calls, self.flat, self.sent = calls, flat, sent

    def send(self, iteration, targets, payload):
        first = self.flat.runs(payload)[0][0].item()
        self.calls.append(f"send {iteration} of {first:g} to {targets}")

    def peers(self):
        return {}

    def read(self, rank, iteration, into, peers):
        if self.sent[rank] is None:
            into.fill_(255)  # in part
            return False
        for run in self.flat.runs(into):
            run.fill_(self.sent[rank])
        return True

    def start_over(self):
        self.calls.append("start over")


def job_of(policy, model, sent, updates, given_up=()):
    """A job after its first parameters, and the list of what it does."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    job = st.run(policy, model, optimizer=optimizer)
    calls = []
    job.worker = Worker(calls, updates, given_up)
    job._flat = _Flat(model, job._who)
    job._own, job._received, job._sums = job._flat.buffer(), job._flat.buffer(), job._flat.sums()
    job._exchange = Exchange(calls, job._flat, sent)
    job._has_parameters = True
    return job, calls


def step_of(iteration, skip=False):
    return syncd.Step(iteration, False, False, skip, False, 0)


def model_of(number):
    model = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.constant_(model.weight, number)
    return model


def third(rank, iteration):
    return syncd.Update(rank, iteration, 1 / 3)


def iterate(job, step, gradient=1.0):
    job._granted(step)
    job._starts(step)
    job.model.weight.grad = torch.full_like(job.model.weight, gradient)
    job.mix(torch.tensor(0.5), samples=4)


def test_hop_sends_before_it_computes_and_applies_the_gradient_to_the_mean():
    updates = [third(rank, 5) for rank in range(3)]
    job, calls = job_of("hop:complete", model_of(3.0), {1: 4.0, 2: 8.0}, updates)
    iterate(job, step_of(5))
    assert job.model.weight.item() == pytest.approx((3 + 4 + 8) / 3 - 1)
    sent = ["targets 5", "send 5 of 3 to [1, 2]", "push (None, 0, 8)"]
    assert calls == [*sent, "collect 5", "consumed 5"]
    assert (job.mixed, job.missing) == (2, 0)
    calls.clear()
    iterate(job, step_of(6))
    assert calls[1:3] == ["send 6 of 4 to [1, 2]", "push (0.5, 4, 8)"]  # with the loss of the one before


def test_notify_ack_computes_first_and_mixes_what_it_has_sent():
    updates = [third(rank, 5) for rank in range(3)]
    job, calls = job_of("notify_ack:complete", model_of(3.0), {1: 4.0, 2: 8.0}, updates)
    iterate(job, step_of(5))
    assert job.model.weight.item() == pytest.approx((2 + 4 + 8) / 3)
    sent = ["mark", "targets 5", "send 5 of 2 to [1, 2]", "push (0.5, 4, 8)"]
    assert calls == [*sent, "collect 5", "consumed 5"]


def test_notify_ack_with_several_batches_in_an_iteration():
    job, calls = job_of("notify_ack:complete,every=3", model_of(9.0), {}, [syncd.Update(0, 0, 1.0)])
    step = step_of(0)
    job._granted(step)
    for batch in range(3):
        assert job._continues() == (batch > 0)
        job._starts(step)
        job.model.weight.grad = torch.ones(1, 1)
        assert calls == []
        job.mix()
    assert "send 0 of 6 to [1, 2]" in calls and not job._continues()
    with pytest.raises(syncd.Error, match="job job, worker 0: mix\\(\\) is called once for each batch"):
        job.mix()


@pytest.mark.parametrize("policy, waits", [("notify_ack:complete", True), ("hop:complete", False)])
def test_who_ends_waits_until_its_last_update_was_read(policy, waits, monkeypatch):
    """The daemon answers that targets() when all have consumed the update of the iteration before."""
    job, calls = job_of(policy, model_of(9.0), {}, [syncd.Update(0, 0, 1.0)])
    steps = map(step_of, range(9))
    monkeypatch.setattr(job.worker, "begin", lambda data: next(steps), raising=False)
    monkeypatch.setattr(job._exchange, "flush", lambda seconds: calls.append("flush"), raising=False)
    for _ in job.steps(iterations=2):
        job.mix()
    calls.clear()
    job._closing(None)
    assert calls == ["flush", *["targets 2"] * waits]
    calls.clear()
    job.worker.given_up = ("targets",)
    job._closing(None)  # raises nothing
    job._closing(ValueError("of the script"))
    assert calls == ["flush", *["targets 2"] * waits]
    for _ in job.steps(iterations=4):
        job.mix()
        break  # within an iteration: the next one is not granted
    calls.clear()
    job._closing(None)
    assert calls == ["flush"]


def test_the_daemon_says_when_the_last_update_was_read(daemon):
    with syncd.connect(daemon.address) as client:
        pair = [client.join("job", "notify_ack:complete", rank=rank, world_size=2) for rank in range(2)]
        ends, reads = pair
        begun = in_thread(ends.begin)
        reads.begin()
        begun()
        for one in pair:
            one.targets(0)
            one.push()
        assert len(ends.collect(0)) == 2
        ends.consumed(0)
        ends.begin()
        done = []
        ended = in_thread(lambda: done.append(ends.targets(1)) or ends.leave(kind="finished"))
        assert {one.rank for one in reads.collect(0)} == {0, 1} and not done
        reads.consumed(0)
        ended()
        assert done == [[1]]


def test_an_iteration_goes_on_in_the_next_loop(monkeypatch):
    job, calls = job_of("notify_ack:complete,every=3", model_of(9.0), {}, [syncd.Update(0, 0, 1.0)])
    steps = iter([step_of(0), step_of(1), syncd.Step(2, False, False, False, True, 0, reason="by hand")])
    monkeypatch.setattr(job.worker, "begin", lambda data: next(steps), raising=False)
    done = []
    for _ in range(4):
        for step, _ in job.steps([None] * 2):
            done.append(step)
            job.mix()
    assert done == [0, 0, 0, 1, 1, 1], "begin() is not asked after the end"
    assert [one for one in calls if "push" in one] == ["push (None, 0, 8)"] * 2
    assert not job._finished


@pytest.mark.parametrize("policy", ["hop:complete", "notify_ack:complete", "notify_ack:complete,every=2"])
def test_a_batch_without_mix_is_mixed_without_its_gradient(policy, monkeypatch):
    job, calls = job_of(policy, model_of(9.0), {}, [syncd.Update(0, 0, 1.0)])
    steps = map(step_of, range(9))
    monkeypatch.setattr(job.worker, "begin", lambda data: next(steps), raising=False)
    for step, _ in job.steps([None] * 2, iterations=2):
        job.model.weight.grad = torch.ones(1, 1)
        if step == 0:
            continue
        job.mix()
    for number in range(2):
        done = [f"collect {number}", f"consumed {number}"]
        assert [one for one in calls if one in done] == done
    batches = 2 if "every" in policy else 1
    assert job.model.weight.item() == 9.0 - batches


def test_an_update_that_was_lost_is_left_out_and_the_weights_renormalized():
    updates = [third(rank, 5) for rank in range(3)]
    job, _ = job_of("hop:complete", model_of(3.0), {1: None, 2: 8.0}, updates)
    iterate(job, step_of(5), gradient=0.0)
    assert job.model.weight.item() == pytest.approx((3 + 8) / 2)
    assert (job.mixed, job.missing) == (1, 1)
    job._exchange.sent[2] = None
    iterate(job, step_of(6), gradient=0.0)
    assert job.model.weight.item() == pytest.approx((3 + 8) / 2)  # its own, as they were


def test_weights_are_the_daemons():
    updates = [syncd.Update(0, 5, 0.5), syncd.Update(1, 5, 0.25), syncd.Update(2, 5, 0.25)]
    job, _ = job_of("hop:complete", model_of(2.0), {1: None, 2: 8.0}, updates)
    iterate(job, step_of(5), gradient=0.0)
    assert job.model.weight.item() == pytest.approx((0.5 * 2 + 0.25 * 8) / 0.75)


def test_a_jump_renews_the_parameters_before_they_are_sent():
    updates = [third(rank, 7) for rank in range(3)]
    job, calls = job_of("hop:complete,backup=1,skip=4", model_of(3.0), {1: 4.0, 2: 8.0}, updates)
    step = step_of(8, skip=True)
    job._granted(step)
    assert calls == ["collect 7"] and job.model.weight.item() == pytest.approx(5)
    job._starts(step)
    assert calls[2] == "send 8 of 5 to [1, 2]"


def test_what_is_not_a_number_is_never_sent():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    model.register_buffer("mask", torch.tensor([0.0, float("-inf")]))  # which is allowed
    job, calls = job_of("hop:complete", model, {}, [])
    job._granted(step_of(0))
    job._starts(step_of(0))
    assert "push" in calls[-1]
    for spoil, name in [
        (lambda: model[1].bias.data.fill_(float("nan")), "parameter 1.bias"),
        (lambda: model[0].weight.data[1].fill_(float("inf")), "parameter 0.weight"),
        (lambda: model[1].running_var.fill_(float("nan")), "buffer 1.running_var"),
    ]:
        before = {name: one.clone() for name, one in model.state_dict().items()}
        calls.clear()
        spoil()
        with pytest.raises(syncd.Invalid, match=f"job job, worker 0: {name} is infinite or not a number in"):
            job._starts(step_of(1))
        assert calls == ["targets 1"]
        model.load_state_dict(before)


@pytest.mark.parametrize("where", ["targets", "push", "collect", "consumed"])
def test_a_worker_that_was_given_up_takes_parts_again_where_the_daemon_says(where, monkeypatch):
    updates = [third(rank, 5) for rank in range(3)]
    job, calls = job_of("hop:complete", model_of(3.0), {1: 4.0, 2: 8.0}, updates, {where})
    iterate(job, step_of(5))  # raises nothing
    assert calls[-1].startswith(where)
    job.worker.given_up = ()
    taken = []
    monkeypatch.setattr(job, "_take_parameters", taken.append)
    calls.clear()
    iterate(job, step_of(4))
    assert [step.iteration for step in taken] == [4]
    assert calls[0] == "start over" and "consumed 4" in calls


@pytest.mark.parametrize("next_step, over", [(5, True), (9, True), (6, False)])
def test_a_worker_that_was_given_up_while_it_waited(next_step, over, monkeypatch):
    job, calls = job_of("hop:complete", model_of(3.0), {}, [syncd.Update(0, 5, 1.0)])
    monkeypatch.setattr(job, "_take_parameters", lambda step: None)
    iterate(job, step_of(5))
    calls.clear()
    iterate(job, step_of(next_step))
    assert (calls[0] == "start over") == over
    iterate(job, step_of(next_step + 4, skip=True))  # a jump is no loss
    assert calls.count("start over") == over


def test_kinds_of_numbers_are_mixed_each_in_its_own():
    model = torch.nn.Module()
    kinds = [torch.float32, torch.float16, torch.float64, torch.bfloat16]
    for at, kind in enumerate(kinds):
        model.register_parameter(f"p{at}", torch.nn.Parameter(torch.full((3, 1 + at), 2.0, dtype=kind)))
    model.register_buffer("mean", torch.full((5,), 2.0))
    model.register_buffer("count", torch.tensor(3))
    flat = _Flat(model, str)
    assert flat.bytes % 8 == 0 and len(flat.runs(flat.buffer())) == 4
    job, _ = job_of("hop:complete", model, {1: 3.0, 2: 7.0}, [third(rank, 0) for rank in range(3)])
    job._granted(step_of(0))
    job._starts(step_of(0))
    job.mix()
    for _, one in [*model.named_parameters(), ("mean", model.mean)]:
        assert torch.allclose(one, torch.full_like(one, 4.0))
    assert model.count.item() == 3
    packed, again = flat.buffer(), flat.buffer()
    flat.pack(packed)
    values = [one.clone() for one in model.state_dict().values()]
    flat.unpack([run.clone() for run in flat.runs(packed)])
    flat.pack(again)
    assert torch.equal(packed, again)
    assert all(torch.equal(a, b) for a, b in zip(values, model.state_dict().values()))


def test_tensors_that_the_model_replaces_are_mixed_as_they_are_then():
    model = model_of(3.0)
    model.register_buffer("ema", torch.zeros(1))
    model.register_buffer("cache", torch.zeros(1), persistent=False)  # as long as the longest input, perhaps
    job, calls = job_of("hop:complete", model, {1: 4.0, 2: 8.0}, [third(rank, 5) for rank in range(3)])
    model.weight.data = torch.full((1, 1), 6.0)  # as model.to(device) does
    model.ema = torch.full((1,), 3.0)
    model.cache = torch.full((7,), 3.0)
    iterate(job, step_of(5), gradient=0.0)
    assert model.weight.item() == pytest.approx((6 + 4 + 8) / 3)
    assert model.ema.item() == pytest.approx((3 + 4 + 8) / 3)
    assert torch.equal(model.cache, torch.full((7,), 3.0)) and "send 5 of 6 to [1, 2]" in calls


def set_ema(value):
    return lambda model: setattr(model, "ema", value)


@pytest.mark.parametrize(
    "change, said",
    [
        (torch.nn.Module.double, "parameter weight is float64 [1, 1], and was float32 [1, 1]"),
        (set_ema(torch.zeros(2, 1)), "tensor ema is float32 [2, 1], and was float32 [1]"),
        (set_ema(torch.zeros(1).half()), "tensor ema is float16 [1], and was float32 [1]"),
        (set_ema(None), "tensor ema is missing, and was float32 [1]"),
        (lambda one: one.register_buffer("new", torch.ones(2)), "tensor new is float32 [2], and was missing"),
    ],
)
def test_a_tensor_of_another_kind_than_at_the_beginning_is_named(change, said):
    model = model_of(3.0)
    model.register_buffer("ema", torch.zeros(1))
    job, calls = job_of("hop:complete", model, {}, [])
    job._granted(step_of(5))
    change(model)
    with pytest.raises(syncd.Invalid) as caught:
        job._starts(step_of(5))
    assert f"job job, worker 0: {said} when the worker joined; allowed: the same" in str(caught.value)
    assert calls == ["targets 5"]


def test_models_that_differ_have_other_schemas():
    schemas = {
        _Flat(model, str).schema
        for model in [
            torch.nn.Linear(2, 3),
            torch.nn.Linear(3, 2),
            torch.nn.Linear(2, 3).double(),
            torch.nn.Sequential(torch.nn.Linear(2, 3)),
        ]
    }
    assert len(schemas) == 4
    assert _Flat(torch.nn.Linear(2, 3), str).schema in schemas
    model = torch.nn.Linear(2, 2)
    model.register_parameter("phase", torch.nn.Parameter(torch.ones(2, dtype=torch.complex64)))
    with pytest.raises(syncd.Invalid, match="parameter phase is of torch.complex64"):
        _Flat(model, str)


def test_the_policy_says_how_many_updates_are_kept():
    assert _Rules("hop:ring").slots == 5
    assert _Rules("hop:ring_based,max_ig=2,backup=1,backup.3=2").slots == 3
    assert _Rules("hop:complete, max_ig=3 ,staleness=2,skip=10,skip_trigger=2").slots == 7
    rules = _Rules("notify_ack:root_expander,every=4")
    assert (rules.slots, rules.batches, rules.acknowledges) == (1, 4, True)


def test_the_default_of_max_ig_is_the_daemons(daemon):
    with syncd.connect(daemon.address) as client:
        with client.join("job", "hop:ring,max_ig=4", rank=0, world_size=2) as worker:
            assert worker.policy == "hop:ring"  # which names what is not by default


def test_wrong_options_are_named():
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for given, message in [
        ({"optimizer": None}, "optimizer=None under hop:ring; allowed: the model's optimizer"),
        ({"optimizer": optimizer, "exchange_timeout": 0}, "exchange_timeout=0; allowed: seconds above 0"),
        ({"optimizer": optimizer, "outer": 1}, "outer= under hop:ring; options of the form neighbours: "),
    ]:
        with pytest.raises(syncd.Invalid, match=message):
            st.run("hop:ring", model, **given)


# ---- Where the first parameters come from, with threads as workers


class Asked:
    """What _take_parameters() asks: members, and what each of them gives."""

    def __init__(self, schema, members, gives):
        self.members, self.gives, self.adopted, self.asked = members, gives, None, []
        self.card = types.SimpleNamespace(schema=schema, about="")

    def cards(self):
        shown = {}
        for rank, clock in self.members.items():
            shown[rank] = (types.SimpleNamespace(clock=clock, host="host"), self.card)
        return shown

    def ask(self, rank, card, into, initial):
        assert initial == self.begins
        self.asked.append(rank)
        found = self.gives.get(rank)
        if isinstance(found, list):  # one answer after the other
            found = found.pop(0)
        if found is None:
            return None
        iteration, number = found
        torch.frombuffer(into, dtype=torch.float32)[0] = number
        return iteration

    def adopt(self, payload):
        self.adopted = torch.frombuffer(bytearray(payload), dtype=torch.float32)[0].item()


def take(rank, step, members, gives, resumed=False, continue_at=None):
    job, _ = job_of("hop:complete", model_of(100.0 + rank), {}, [])
    job.worker.rank, job.resumed, job._continue_at = rank, resumed, continue_at
    job._has_parameters = False
    job._exchange = Asked(job._flat.schema, members, gives)
    job._exchange.begins = step.iteration == 0
    job._take_parameters(step)
    assert job._exchange.adopted == job.model.weight.item() and job._has_parameters
    return job.model.weight.item(), job._exchange.asked


def test_at_a_fresh_start_all_take_those_of_rank_0():
    members = {0: 0, 1: 0, 2: 0}
    assert take(0, step_of(0), members, {}) == (100.0, [1, 2])
    assert take(2, step_of(0), members, {0: [None, (-1, 7.0)]}) == (7.0, [0, 1, 0])


def test_one_that_comes_back_alone_takes_a_neighbours_last_update():
    members = {0: 40, 1: 41, 2: 39}
    assert take(2, step_of(39), members, {0: (40, 5.0), 1: (41, 6.0)}) == (6.0, [1])
    assert take(2, step_of(39), members, {0: (40, 5.0)}) == (5.0, [1, 0])
    assert take(0, step_of(0), members, {1: (0, 6.0)})[0] == 6.0  # rank 0 does not give random ones either
    # Also where it finds a checkpoint: the others are further.
    assert take(2, step_of(39), members, {1: (41, 6.0)}, True, 20) == (6.0, [1])
    assert take(2, step_of(39), members, {1: (41, 6.0)}, True, 39) == (6.0, [1])


def test_a_group_that_starts_again_continues_from_its_checkpoint():
    step = step_of(20)._replace(resumed=True)
    assert take(2, step, {0: 20, 1: 20, 2: 20}, {0: (-1, 5.0)}, True, 20) == (102.0, [])
    # Without one, the parameters are again those of the lowest rank.
    assert take(2, step, {0: 20, 1: 20, 2: 20}, {0: (-1, 5.0)})[0] == 5.0


def test_without_rank_0_the_lowest_gives():
    assert take(1, step_of(3), {1: 3, 2: 3}, {})[0] == 101.0
    assert take(2, step_of(3), {1: 3, 2: 3}, {1: [None, None, (-1, 101.0)]})[0] == 101.0


# ---- Processes


def starter(daemon, run):
    def begin(rank, *arguments, workers=4, policy=HOP, iterations=150, pause=0.0, after=None):
        environment = {
            "SYNCD_ADDR": daemon.address,
            "RANK": str(rank),
            "WORLD_SIZE": str(workers),
            "SYNCD_TEST_POLICY": policy,
            "SYNCD_TEST_ITERATIONS": str(iterations),
            "SYNCD_TEST_PAUSE": str(pause),
            "SYNCD_TEST_AFTER": "" if after is None else str(after),
            "OMP_NUM_THREADS": "1",
        }
        return run("neighbours_worker.py", *(arguments or ("none",)), env=environment)

    return begin


@pytest.fixture
def start(daemon, run):
    return starter(daemon, run)


def finish(process, code=0):
    found, out, err = process.finish()
    assert found == code, out + err
    return out


def begun(out):
    """Where a worker began, and its largest weight then."""
    found = re.search(r"^begins at (\d+) with a weight of (.*)$", out, re.MULTILINE)
    return int(found.group(1)), float(found.group(2))


def test_one_is_killed_and_comes_back_with_a_neighbours_parameters(start, tmp_path):
    policy, iterations = "hop:ring_based,backup=1,max_ig=4", 400
    again = start(2, policy=policy, iterations=iterations, after=tmp_path / "again")  # has imported torch
    workers = [
        start(rank, *(("kill", 60) if rank == 2 else ()), policy=policy, iterations=iterations, pause=0.01)
        for rank in range(4)
    ]
    for rank in (0, 1, 3):
        workers[rank].wait_for("iteration 80")
    assert workers[2].child.wait(PATIENCE_S) == -9
    (tmp_path / "again").touch()
    out = finish(again)
    iteration, weight = begun(out)
    assert iteration > 60 and weight < 100  # its own was 2000
    assert re.search(r"log: job plane, worker 2 takes the parameters of worker \d, iteration \d+", out)
    for rank in (0, 1, 3):
        out = finish(workers[rank])
        assert float(re.search("error (.*),", out).group(1)) < 0.001


def test_the_worker_that_hangs_is_named_under_hop(daemon, start):
    workers = [
        start(rank, *(("hang", 30) if rank == 1 else ("none", -1)), "hang_after=1", workers=3)
        for rank in range(3)
    ]
    workers[1].wait_for("fault hang")
    for rank in (0, 2):
        workers[rank].wait_for("hears that worker 1 hangs")
    # On a busy machine they may have heard it of an iteration before, which ended after all.
    end = time.monotonic() + PATIENCE_S
    while "waiting for worker 1" not in (said := daemon.syncctl("explain", "plane")):
        assert time.monotonic() < end, said


@pytest.mark.slow  # every process takes seconds to import torch
@pytest.mark.parametrize("shared", [True, False])
def test_notify_ack_learns_together(start, shared):
    arguments = ("none", -1, f"shared_memory={shared}")
    for process in [
        start(rank, *arguments, workers=3, policy="notify_ack:complete,every=2") for rank in range(3)
    ]:
        out = finish(process)
        assert "300 mixed, 0 missing" in out
        assert begun(out) == (0, 0.0)  # with those of rank 0


@pytest.mark.slow
def test_a_stopped_worker_is_given_up_and_comes_back(start_daemon, run):
    daemon = start_daemon('[timeouts]\nheartbeat_timeout = "1s"\nworker_grace = "1s"\n')
    start = starter(daemon, run)
    workers = [start(rank, workers=3, policy="hop:ring", iterations=600, pause=0.01) for rank in range(3)]
    workers[2].wait_for("iteration 50")
    workers[2].child.send_signal(signal.SIGSTOP)
    for rank in (0, 1):
        workers[rank].wait_for("iteration 100")
    workers[2].child.send_signal(signal.SIGCONT)
    out = finish(workers[2])
    assert re.search(r"worker 2 takes the parameters of worker \d, iteration \d+", out), out
    for rank in (0, 1):
        finish(workers[rank])


@pytest.mark.slow
def test_the_example(daemon, run):
    environment = {"SYNCD_ADDR": daemon.address, "WORLD_SIZE": "4", "OMP_NUM_THREADS": "1"}
    example = HERE.parent / "examples/torch_hop.py"
    assert len(example.read_text().splitlines()) <= 40
    for process in [run(example, env={**environment, "RANK": str(rank)}) for rank in range(4)]:
        assert "updates mixed in, error on fresh data 0.0000" in finish(process)


@pytest.mark.slow
def test_hop_over_tcp_with_jumps(start):
    policy = "hop:complete,max_ig=3,backup=1,skip=5,skip_trigger=2"
    workers = [
        start(rank, "none", -1, "shared_memory=False", policy=policy, pause=0.02 if rank == 1 else 0.005)
        for rank in range(4)
    ]
    for process in workers:
        finish(process)


@pytest.mark.slow
def test_a_worker_with_nan_fails_and_the_others_go_on(daemon, start):
    workers = [start(rank, *(("nan", 50) if rank == 1 else ()), workers=3) for rank in range(3)]
    code, _, err = workers[1].finish()
    assert code == 1
    said = "job plane, worker 1: parameter 0.weight is infinite or not a number in iteration 51"
    assert said in err
    for rank in (0, 2):
        finish(workers[rank])
    assert f"failed: Invalid: SYNCD_E_INVALID: {said}" in (daemon.directory / "log").read_text()


@pytest.mark.slow
def test_a_worker_with_another_model_is_refused(start):
    workers = [start(rank, *(("wrong_model",) if rank == 2 else ()), workers=3) for rank in range(3)]
    code, _, err = workers[2].finish()
    assert code == 1
    assert re.search(
        r"job plane, worker 2: the model has 2 tensors with 10 numbers, that of worker 0 \(.*\) 2 tensors "
        "with 9 numbers",
        err,
    )
    for rank in (0, 1):
        finish(workers[rank])


@pytest.mark.slow
def test_a_group_that_is_killed_continues_from_its_checkpoint(daemon, start, tmp_path):
    arguments = ("none", -1, f"checkpoint={tmp_path / 'saved'}")
    options = {"workers": 3, "iterations": 300, "pause": 0.01}
    workers = [start(rank, *arguments, **options) for rank in range(3)]
    workers[0].wait_for("iteration 60")
    daemon.syncctl("checkpoint", "plane", "--wait")
    for process in workers:
        process.kill()
    outs = [finish(process) for process in [start(rank, *arguments, **options) for rank in range(3)]]
    starts = {begun(out)[0] for out in outs}
    assert len(starts) == 1 and starts.pop() >= 60
    for out in outs:
        assert "resumed True" in out and "takes the parameters" not in out
        assert begun(out)[1] < 100
