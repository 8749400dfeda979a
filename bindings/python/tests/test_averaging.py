"""The form "averaging": who takes what from whom after lost averages, joins and bad input.

The workers of a job are threads here, each with a model of its own, over real process groups; a test
steps them. Real processes are in test_averaging_processes.py.
"""

import itertools
import os
import queue
import socket
import threading
import weakref
from types import SimpleNamespace

import pytest
import torch

import syncd
import syncd.torch as st
from conftest import PATIENCE_S
from server_parts import in_thread
from syncd.torch import _averaging, _shared_sum, _staging, _view_group
from syncd.torch._averaging import plan_of

os.environ.setdefault("USE_LIBUV", "0")
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")


class Net(torch.nn.Module):
    """Numbers that say where they come from."""

    def __init__(self, value):
        super().__init__()
        self.w = torch.nn.Parameter(torch.tensor([float(value)]))
        self.register_buffer("mean", torch.tensor(float(value)))
        self.register_buffer("count", torch.tensor(int(value)))
        self.register_buffer("cache", torch.zeros(int(value) % 7), persistent=False)


class Stepped:
    """A worker on a thread, which trains when it is told to. Under bsp each step ends in an averaging."""

    def __init__(self, daemon, rank, value, world=None, loader=None, model=None, **options):
        self.model = Net(value) if model is None else model
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1.0, momentum=0.5)
        self.error = None
        self._joined = threading.Event()
        self._orders, self._said = queue.Queue(), queue.Queue()
        steps = {"averagings": options.pop("averagings", 1000)}
        self._run = lambda: self._train(daemon, rank, world, loader, options, steps)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _train(self, daemon, rank, world, loader, options, steps):
        options = {"policy": "bsp", "job": "job", "name": f"w{rank}", **options}
        try:
            with st.run(
                model=self.model,
                optimizer=self.optimizer,
                rank=rank,
                world_size=world,
                address=daemon.address,
                **options,
            ) as self.job:
                self._joined.set()
                for _, _ in self.job.steps(loader, **steps):
                    self._said.put("granted")
                    order = self._orders.get()
                    if order is None:
                        break
                    order()
                    self.job.push()
        except BaseException as error:
            self.error = error
        self._said.put("ended")

    def train(self, add):
        """One step, which adds to the parameter as SGD with momentum does."""

        def order():
            self.model.w.grad = torch.tensor([-float(add)])
            self.optimizer.step()
            self.model.mean += add

        self._orders.put(order)

    def do(self, order):
        self._orders.put(order)

    def granted(self):
        said = self._said.get(timeout=PATIENCE_S)
        assert said == "granted", self.error
        return self

    def ended(self):
        while self._said.get(timeout=PATIENCE_S) != "ended":
            pass
        return self

    def leave(self):
        self._orders.put(None)

    def joined(self):
        """Has joined, so that the next view has it."""
        assert self._joined.wait(PATIENCE_S)
        return self

    @property
    def w(self):
        return self.model.w.item()


class Scripted(_view_group.ViewGroup):
    """A group that loses what has arrived, where the test says so: (rank in the view, view)."""

    lost = set()
    made = []

    def __init__(self, place, *rest):
        super().__init__(place, *rest)
        if place.rank == 0:
            self.made.append(int(place.view.split(".")[1]))

    def all_reduce(self, tensor):
        work = super().all_reduce(tensor)
        place = self.place

        def wait():
            work.wait()
            if (place.rank, int(place.view.split(".")[1])) in self.lost:
                raise RuntimeError("connection closed by peer")

        return SimpleNamespace(wait=wait, is_completed=work.is_completed)


class ScriptedSum(_shared_sum.SharedSum):
    """Likewise, in shared memory."""

    def add_up(self, number, *rest):
        super().add_up(number, *rest)
        if (self._rank, number & (1 << 40) - 1) in Scripted.lost:
            raise RuntimeError("connection closed by peer")


# Where workers on one machine add up.
in_memory_and_by_gloo = pytest.mark.parametrize(
    "workers", [True, False], indirect=True, ids=["memory", "gloo"]
)


@pytest.fixture(autouse=True)
def scripted(monkeypatch):
    monkeypatch.setattr(_averaging, "ViewGroup", Scripted)
    monkeypatch.setattr(_view_group, "SharedSum", ScriptedSum)
    monkeypatch.setattr(Scripted, "lost", set())
    monkeypatch.setattr(Scripted, "made", [])


@pytest.fixture
def workers(daemon, request):
    """start(count, ...): so many, which have begun; more(rank, value): one that joins them."""
    all_of_them = []
    shared_memory = getattr(request, "param", True)

    def more(rank, value, **options):
        options = {"shared_memory": shared_memory, **options}
        all_of_them.append(Stepped(daemon, rank, value, **options))
        return all_of_them[-1]

    def start(count, **options):
        begun = [more(rank, 100 * rank, world=count, **options) for rank in range(count)]
        return [one.granted() for one in begun]

    yield SimpleNamespace(start=start, more=more)
    for one in all_of_them:
        one.leave()
    for one in all_of_them:
        one._thread.join(10)


def step(workers, adds):
    for one, add in zip(workers, adds):
        one.train(add)
    for one in workers:
        one.granted()


def values(workers):
    return [one.w for one in workers]


# ---- Labels


def test_all_derive_the_same_plan_from_labels():
    none = None
    for labels, view, source, takers, label in [
        ([none, none, none], 1, 0, (1, 2), (1, 1)),
        ([none, (1, 4), (1, 5), (1, 5)], 6, 2, (0, 1), (1, 6)),
        ([(1, 5), (1, 5)], 6, 0, (), (1, 6)),
        (
            [(1, 57), (1, 57)],
            1,
            0,
            (),
            (2, 1),
        ),  # a launch that continues from a checkpoint
        ([(1, 57), (2, 3)], 4, 1, (0,), (2, 4)),
    ]:
        plan = plan_of(labels, view)
        assert (plan.source, plan.takers, plan.label) == (source, takers, label)
        assert plan.at_start == (labels == [none] * len(labels))


@in_memory_and_by_gloo
def test_at_the_start_all_take_rank_0s(workers):
    three = workers.start(3)
    assert values(three) == [0, 0, 0]
    assert [one.job.label for one in three] == [(1, 1)] * 3
    assert [one.job.averagings for one in three] == [0] * 3
    step(three, [3, 6, 9])
    assert values(three) == [6, 6, 6]
    assert [one.model.mean.item() for one in three] == [6, 6, 6]
    assert [one.job.averagings for one in three] == [1] * 3
    assert not torch.distributed.is_initialized()


@in_memory_and_by_gloo
def test_ranks_that_disagree_about_the_end_of_an_averaging_are_mended(workers):
    three = workers.start(3)
    Scripted.lost.add((1, 2))
    step(three, [3, 30, 9])
    assert values(three) == [14, 30, 14]
    assert [one.job.label for one in three] == [(1, 2), (1, 1), (1, 2)]
    step(three, [0, 0, 0])
    mended = [one.w for one in three]
    assert mended[0] == mended[1] == mended[2]
    assert (
        mended[0] == 14 + (1.5 + 4.5) / 2
    ), "the mean of those that had the average, with their momentum"
    assert [one.job.label for one in three] == [(1, 3)] * 3
    assert [one.job.averagings for one in three] == [2] * 3
    step(three, [0, 0, 0])
    assert len(set(values(three))) == 1
    # A group serves again only if all had the last average whole.
    assert Scripted.made == [1, 3]


@in_memory_and_by_gloo
def test_all_lose_their_average_and_go_on_from_their_own(workers):
    three = workers.start(3)
    Scripted.lost.update({(0, 2), (1, 2), (2, 2)})
    step(three, [3, 6, 9])
    assert values(three) == [3, 6, 9]
    assert [one.job.label for one in three] == [(1, 1)] * 3
    step(three, [0, 0, 0])
    assert values(three) == [9, 9, 9], "of 4.5, 9 and 13.5: nobody's work is dropped"
    assert [one.job.averagings for one in three] == [1] * 3


@in_memory_and_by_gloo
def test_a_joiner_takes_everything_and_weighs_nothing(workers):
    two = workers.start(2)
    step(two, [4, 8])
    joiner = workers.more(2, 10**6).joined()
    step(two, [2, 2])
    three = [*two, joiner.granted()]
    assert len(set(values(three))) == 1 and joiner.w < 100
    assert [one.job.averagings for one in three] == [two[0].job.averagings] * 3
    assert joiner.model.count.item() == 0 and joiner.model.mean.item() == two[0].model.mean.item()
    momenta = [one.optimizer.state[one.model.w]["momentum_buffer"].item() for one in three]
    assert momenta[2] == momenta[0]
    before = joiner.w
    moved = [add + momentum / 2 for add, momentum in zip([3, 6, 9], [-one for one in momenta])]
    step(three, [3, 6, 9])
    assert joiner.w == pytest.approx(before + sum(moved) / 3), "from now on it counts"


@in_memory_and_by_gloo
def test_rank_0_that_comes_back_takes_instead_of_giving(workers):
    two = workers.start(2)
    step(two, [4, 8])
    two[0].leave()
    two[0].ended()
    step(two[1:], [1])
    again = workers.more(0, 10**6).joined()
    step(two[1:], [1])
    again.granted()
    assert again.w == two[1].w and again.w < 100
    assert again.model.count.item() == 100 * 0 == two[1].model.count.item()


# ---- Weights


@in_memory_and_by_gloo
def test_weights_travel_with_the_tensors_and_count_since_the_last_average(workers):
    batches = [[(torch.zeros(size, 1),) for size in sizes] for sizes in [(1, 3), (3, 1)]]
    two = [
        workers.more(rank, 0, world=2, loader=batches[rank], weight="samples") for rank in range(2)
    ]
    for one in two:
        one.granted()
    step(two, [4, 8])
    assert values(two) == [7, 7]
    step(two, [4 - 2, 8 - 4])  # and half of the step before, by momentum
    assert values(two) == [7 + (3 * 4 + 8) / 4] * 2


@in_memory_and_by_gloo
def test_a_sum_of_weights_of_0_changes_nothing(workers):
    empty = [(torch.zeros(0, 1),)]
    two = [workers.more(rank, 0, world=2, loader=empty, weight="samples") for rank in range(2)]
    for one in two:
        one.granted()
    step(two, [4, 8])
    assert values(two) == [4, 8]
    assert [one.job.averagings for one in two] == [0, 0]
    assert [one.job.label for one in two] == [(1, 2)] * 2


def test_samples_that_cannot_be_counted_are_refused(workers):
    (one,) = workers.start(1, weight="samples")
    one.train(1)
    assert "call job.push(samples=len(inputs))" in str(one.ended().error)


# ---- The outer optimizer


def nesterov(parameters):
    return torch.optim.SGD(parameters, lr=0.5, momentum=0.9, nesterov=True)


def momentum_of(worker):
    outer = worker.job._outer
    return [outer.optimizer.state[one]["momentum_buffer"].item() for one in outer._all()]


def test_the_outer_optimizer_is_the_same_on_all_after_a_join(workers):
    two = workers.start(2, outer=nesterov)
    step(two, [4, 8])
    # gradient 0 - 6; nesterov's first step: (1 + 0.9) * 0.5 * 6
    assert values(two) == pytest.approx([5.7, 5.7])
    joiner = workers.more(2, 10**6, outer=nesterov).joined()
    step(two, [1, 2])
    three = [*two, joiner.granted()]
    for _ in range(3):
        assert len(set(values(three))) == 1
        assert momentum_of(three[0]) == momentum_of(three[1]) == momentum_of(three[2])
        step(three, [1, 2, 3])


@in_memory_and_by_gloo
def test_a_rank_that_lost_an_average_takes_the_outer_state_too(workers):
    two = workers.start(2, outer=nesterov)
    step(two, [4, 8])
    Scripted.lost.add((0, 3))
    step(two, [1, 2])
    assert momentum_of(two[0]) != momentum_of(two[1])
    step(two, [1, 2])
    assert momentum_of(two[0]) == momentum_of(two[1])
    assert len(set(values(two))) == 1


def test_an_outer_that_is_no_optimizer_is_refused(workers):
    one = workers.more(0, 0, world=1, outer=lambda parameters: None)
    assert "outer= gives an object of type NoneType" in str(one.ended().error)


# ---- In shared memory


def test_where_one_cannot_share_its_memory_all_take_gloo(workers):
    three = [workers.more(rank, 0, world=3, shared_memory=rank != 1) for rank in range(3)]
    for one in three:
        one.granted()
    step(three, [3, 6, 9])
    assert values(three) == [6, 6, 6]
    assert [one.job._group.shared_sum for one in three] == [None] * 3


def sums_of(*given):
    """The sums of workers with these tensors, in one process."""
    kinds = [(one.dtype, one.numel()) for one in given[0]]
    segments = [_shared_sum.Segment(kinds) for _ in given]
    cards = [one.card for one in segments]
    made = [_shared_sum.SharedSum(one, at, cards) for at, one in enumerate(segments)]
    for shared_sum, segment, tensors in zip(made, segments, given):
        shared_sum.begin()
        for place, one in zip(segment.tensors, tensors):
            place.copy_(one)
    return made, segments


def nothing():
    pass


def test_a_sum_in_shared_memory():
    torch.manual_seed(0)
    given = [
        [torch.randn(100_003), torch.randn(2, dtype=torch.float64), torch.tensor([rank, 7])]
        for rank in range(3)
    ]
    made, segments = sums_of(*given)
    ends = [in_thread(lambda one=one: one.add_up(5, 2, nothing)) for one in made]
    for end in ends:
        end()
    for segment in segments:
        for at in range(2):
            assert torch.equal(segment.tensors[at], given[0][at] + given[1][at] + given[2][at])
        assert segment.tensors[2].tolist() == [2, 7]
    assert not made[0].is_whole(5)
    for one in made:
        one.say_whole(5)
    assert made[0].is_whole(5) and made[0].is_whole(4) and not made[0].is_whole(6)


def test_who_was_given_up_by_the_others_takes_no_rubbish():
    """A process stops while it copies. When it goes on, the others are in a later averaging."""
    made, segments = sums_of([torch.zeros(4)], [torch.ones(4)])

    def later():
        segments[1].header[_shared_sum._FILLED] = 6

    segments[1].header[_shared_sum._FILLED] = segments[1].header[_shared_sum._SUMMED] = 5
    checks = iter([later])
    monkey = made[0]._add
    made[0]._add = lambda *given: (monkey(*given), next(checks)())
    with pytest.raises(_shared_sum.Broken, match="gone on without this worker"):
        made[0].add_up(5, 0, nothing)
    with pytest.raises(_shared_sum.Broken, match="gone on without this worker"):
        made[0].add_up(5, 0, nothing)


def test_who_gives_up_takes_the_others_along():
    made, _ = sums_of([torch.zeros(4)], [torch.ones(4)])
    made[1].say_failed(5)
    with pytest.raises(_shared_sum.Broken, match="one of its workers has failed"):
        made[0].add_up(5, 0, nothing)


def test_another_machines_memory_is_not_mapped(monkeypatch):
    segment = _shared_sum.Segment([(torch.float32, 4)])
    card = segment.card
    with pytest.raises(OSError, match="is another file"):
        segment.map(card[: card.rindex(",")] + ", 1]")
    monkeypatch.setattr(_shared_sum._same_machine, "place", lambda: b"elsewhere")
    with pytest.raises(OSError, match="on another machine"):
        segment.map(card)


# ---- Losses


@in_memory_and_by_gloo
def test_one_that_skips_takes_the_others_along(workers):
    """It has heard of a loss that is over before the others ask: they would wait for it until the timeout."""
    three = workers.start(3)
    job = three[2].job
    job._broken = job._helper._broken = lambda: "worker 1 left or was lost"
    step(three, [3, 6, 9])
    assert values(three) == [3, 6, 9]
    del job._broken
    job._helper._broken = job._broken
    step(three, [0, 0, 0])
    assert values(three) == [9, 9, 9]


def test_nobody_connects_to_a_dead_workers_store(monkeypatch):
    """torch's own client would try until its timeout, in torch 1.13 with the interpreter's lock."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
    monkeypatch.setattr(_view_group._compat, "stores", lambda: pytest.fail("it was tried"))
    with pytest.raises(RuntimeError, match="cannot be reached"):
        _view_group.connect_store(address)


# ---- The end


@pytest.fixture
def says_late(monkeypatch):
    """What a worker posts to its helper is done before the helper's next task, which is of the next view."""
    post, run, late = _view_group.Helper.post, _view_group.Helper.run, {}

    def post_late(helper, work):
        if helper not in late:  # by run()
            return post(helper, work)
        late[helper].append(work)

    def run_late_first(helper, work, *rest, **options):
        for one in late.pop(helper, []):
            post(helper, one)
        try:
            return run(helper, work, *rest, **options)
        finally:
            late[helper] = []

    monkeypatch.setattr(_view_group.Helper, "post", post_late)
    monkeypatch.setattr(_view_group.Helper, "run", run_late_first)


@in_memory_and_by_gloo
@pytest.mark.parametrize("late", [False, True])
def test_all_end_at_the_same_averaging(workers, late, request):
    if late:
        request.getfixturevalue("says_late")
    three = [workers.more(rank, 0, world=3, averagings=2) for rank in range(3)]
    for one in three:
        one.granted()
    step(three, [1, 2, 3])
    Scripted.lost.add((1, 3))  # the last one
    step(three, [1, 2, 3])
    for one in three:
        one.train(1)
    for one in three:
        assert one.ended().error is None
    assert [one.job.averagings for one in three] == [3] * 3
    assert len(set(values(three))) == 1


@in_memory_and_by_gloo
def test_one_that_ends_first_is_no_loss_to_those_that_do_not_know_yet(workers, monkeypatch):
    """It may leave once all have said that they have the average: before another has heard that."""
    two = [workers.more(rank, 0, world=2, averagings=1) for rank in range(2)]
    for one in two:
        one.granted()
    slow, has_left = two[0].job, threading.Event()
    run = slow._run

    def notice_first(group, work, timeout_s):
        found = run(group, work, timeout_s)
        if work.__name__ == "end":
            has_left.wait(PATIENCE_S)
            raise _view_group.Skipped("worker 1 left or was lost")
        return found

    monkeypatch.setattr(slow, "_run", notice_first)
    for one, add in zip(two, [1, 3]):
        one.train(add)
    assert two[1].ended().error is None
    has_left.set()
    assert two[0].ended().error is None
    assert [one.job.averagings for one in two] == [1, 1] and values(two) == [2, 2]


def test_iterations_are_a_workers_own(daemon, workers):
    two = [workers.more(rank, 0, world=2) for rank in range(2)]
    for one in two:
        one.granted()
    steps = two[0].job.steps
    with pytest.raises(syncd.Invalid, match="averagings=0; allowed"):
        steps([], averagings=0)
    with pytest.raises(syncd.Invalid, match="without a loader; allowed with averagings=N"):
        steps()


class Numbered(torch.utils.data.SequentialSampler):
    """Notes the numbers of its passes."""

    def set_epoch(self, number):
        self.passes = [*getattr(self, "passes", []), number]


def test_one_loop_after_another_goes_on(daemon):
    sampler = Numbered(range(3))
    loader = torch.utils.data.DataLoader(torch.arange(3.0), sampler=sampler)
    options = {"job": "epochs", "rank": 0, "world_size": 1, "address": daemon.address}
    with st.run("bsp:2", Net(0), **options) as job:

        def iterations(**until):
            done = []
            for step, _ in job.steps(loader, **until):
                done.append(step)
                job.push()
            return done

        assert [iterations() for _ in range(2)] == [[0, 1, 2], [3, 4, 5]]
        assert iterations(averagings=5) == [6, 7, 8, 9]
        assert job.averagings == 5
        assert iterations(averagings=5) == [], "it has come there"
        assert iterations(averagings=6) == [10, 11]
        assert iterations(iterations=12) == [] and iterations(iterations=13) == [12]
        for _, _ in job.steps(loader):
            job.push()
            break
        assert iterations() == [14, 15, 16] and sampler.passes == list(range(7))
        assert job._finished
        # Of calls with epochs, and not the one that was broken off in its first batch.
        assert job._saved()["passes"] == 3


def test_a_loader_that_has_ended_is_let_go(daemon):
    options = {"job": "loaders", "rank": 0, "world_size": 1, "address": daemon.address}
    loaders = []
    with st.run("bsp", Net(0), **options) as job:
        for number in range(3):
            loader = torch.utils.data.DataLoader(torch.arange(2.0))
            loaders.append(weakref.ref(loader))
            for _ in job.steps(loader):
                job.push()
                assert job._saved()["passes"] == number + int(job.iteration % 2)
            del loader
            assert loaders[-1]() is None
        assert job._saved()["passes"] == 3


def test_a_body_without_push_goes_on(daemon):
    options = {"job": "skips", "rank": 0, "world_size": 1, "address": daemon.address}
    with st.run("bsp:2", Net(0), weight="steps", **options) as job:
        for step, _ in job.steps(iterations=7):
            if step < 4:
                assert job.averagings == 0, "nobody has trained"
                # Of 3 the view is that of 2, whose body may have trained all the same.
                assert job._may_save() == (step % 2 == 0)
                continue
            job.push()
            with pytest.raises(syncd.Error, match="worker 0: push\\(\\) is called once for each batch"):
                job.push()
            assert job._trained_steps == 1 + step % 2
        assert job.averagings == 1 and step == 6


# ---- Checkpoints


def saved(tmp_path):
    return [torch.load(path) for path in sorted(tmp_path.glob("*.ckpt"))]


def test_a_rank_below_the_views_label_saves_nothing(daemon, workers, tmp_path):
    two = workers.start(2, checkpoint=tmp_path)
    Scripted.lost.add((0, 2))  # the one that would save
    daemon.syncctl("checkpoint", "job")
    step(two, [4, 8])
    assert two[0].job._view == 2
    assert saved(tmp_path) == [], "of rank 0's own parameters, which are no average"
    step(two, [0, 0])
    daemon.syncctl("checkpoint", "job")
    step(two, [4, 8])
    (state,) = saved(tmp_path)
    assert tuple(state["form"]["label"]) == two[0].job.label == (1, two[0].job._view)
    assert state["model"]["w"].item() == two[0].w


def test_a_restarted_job_continues_with_label_and_count(daemon, workers, tmp_path):
    two = workers.start(2, checkpoint=tmp_path, outer=nesterov)
    step(two, [4, 8])
    daemon.syncctl("checkpoint", "job")
    step(two, [1, 2])
    assert len(saved(tmp_path)) == 1
    expected, momentum = two[0].w, momentum_of(two[0])
    for one in two:
        one.do(lambda: 1 / 0)
    for one in two:
        assert isinstance(one.ended().error, ZeroDivisionError)
    again = [
        workers.more(rank, 500, world=2, checkpoint=tmp_path, outer=nesterov) for rank in range(2)
    ]
    for one in again:
        one.granted()
    assert values(again) == [expected] * 2 and momentum_of(again[1]) == momentum
    assert [one.job.averagings for one in again] == [2, 2]
    assert again[0].job.resumed and again[0].job.label > (1, 3)
    assert again[0].job.label == again[1].job.label


# ---- Bad input


def test_models_that_differ_at_the_start_are_named_on_each(workers):
    three = [
        workers.more(rank, 0, world=3, model=torch.nn.Linear(2, 3 if rank == 1 else 4))
        for rank in range(3)
    ]
    for one in three:
        message = str(one.ended().error)
        assert "the model of worker 1 differs from worker 0's" in message
        assert "it has weight [3, 2] float32, where worker 0 has weight [4, 2] float32" in message


def test_a_joiner_with_another_model_is_refused_and_the_others_go_on(workers):
    two = workers.start(2)
    joiner = workers.more(2, 0, model=torch.nn.Linear(2, 3)).joined()
    step(two, [4, 8])
    message = str(joiner.ended().error)
    assert "the model of worker 2 differs from worker 0's: it has weight [3, 2] float32" in message
    step(two, [4, 8])
    assert len(set(values(two))) == 1


@in_memory_and_by_gloo
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_the_worker_with_nan_is_told_and_the_others_go_on(workers, bad):
    three = workers.start(3)
    step(three, [3, 6, 9])
    before = three[0].w
    for one, add in zip(three, [1, bad, 3]):
        one.train(add)
    error = three[1].ended().error
    assert isinstance(error, syncd.Invalid)
    assert "job job, worker 1: w is not finite" in str(error)
    for one in (three[0], three[2]):
        one.granted()
        assert before < one.w < before + 100
    step([three[0], three[2]], [0, 0])
    assert three[0].w == three[2].w


class DTensor(torch.nn.Parameter):
    pass


def test_what_is_not_allowed_is_refused_at_once(daemon):
    def run(policy="bsp", model=None, **options):
        st.run(policy, model or Net(0), address=daemon.address, **options)

    sparse, expanded = torch.nn.Linear(1, 1), torch.nn.Linear(1, 1)
    sparse.weight = torch.nn.Parameter(torch.eye(2).to_sparse())
    expanded.register_buffer("cache", torch.zeros(1).expand(3), persistent=False)  # is not exchanged
    expanded.register_buffer("mask", torch.zeros(1).expand(3))
    sharded = torch.nn.Linear(1, 1)
    sharded.weight = DTensor(torch.zeros(1, 1))
    for arguments, message in [
        ({"weight": "loss"}, "weight='loss'; allowed"),
        ({"outer": 3}, "outer is of type int"),
        ({"averaging_timeout": 0}, "averaging_timeout=0; allowed"),
        ({"backend": "mpi"}, "backend='mpi'; allowed"),
        ({"policy": "bsp:1,backup=1"}, 'runs as form="server"'),
        ({"model": sparse}, "parameter weight has the layout torch.sparse_coo; allowed for averaging: dense"),
        ({"model": expanded}, "buffer mask has several elements at one place"),
        ({"model": sharded}, "weight is a DTensor, of which each rank holds a part"),
    ]:
        with pytest.raises(syncd.Error, match=message):
            run(**arguments)


# ---- Parts


def test_the_mean_of_all_kinds_of_tensors_in_small_buckets(monkeypatch):
    monkeypatch.setattr(_staging, "BUCKET_BYTES", 64)
    kinds = [torch.float32, torch.float16, torch.bfloat16, torch.float64]

    def tensors(value):
        made = {
            f"{kind}{n}": torch.full((n,), value, dtype=kind) for kind in kinds for n in (1, 5, 40)
        }
        return {
            **made,
            "count": torch.tensor([int(value)]),
            "flag": torch.tensor(value > 2),
        }

    given = [tensors(1.0), tensors(4.0)]
    stagings = [_staging.Staging(one, None) for one in given]
    assert len(stagings[0].buckets) >= 8
    for at in range(len(stagings[0].buckets)):
        flats = [
            staging.fill(one, at, weight, "w")
            for staging, one, weight in zip(stagings, given, [1, 2])
        ]
        flats[1].copy_(flats[0] + flats[1])
    stagings[1].fill_integers(given[0])  # of the source
    assert stagings[1].total() == 3
    stagings[1].apply(given[1], 3, None)
    for name, one in given[1].items():
        expected = {"count": 1, "flag": 0}.get(name, 3)
        assert one.float().tolist() == torch.full_like(one, expected).float().tolist(), name


@pytest.mark.parametrize("kind", [torch.optim.SGD, type("Own", (torch.optim.SGD,), {})])
@pytest.mark.parametrize("shape", [(3, 170000), (2, 8, 5, 5), (4, 6)])
def test_the_outer_step_is_that_of_the_whole_tensor(shape, kind):
    def nesterov(parameters):
        return kind(parameters, lr=0.5, momentum=0.9, nesterov=True)

    def tensor(seed):
        torch.manual_seed(seed)
        made = torch.randn(shape)
        if shape == (4, 6):
            return made[:, ::2]  # with gaps
        return made.to(memory_format=torch.channels_last) if made.dim() == 4 else made

    own, other = {"w": tensor(1)}, {"w": tensor(2)}
    reference = torch.nn.Parameter(tensor(1))
    whole = nesterov([reference])
    outer = _staging.Outer(nesterov, own)
    staging, theirs = _staging.Staging(own, None), _staging.Staging(other, None)
    for _ in range(2):
        reference.grad = reference.detach() - (own["w"] + other["w"]) / 2
        whole.step()
        staging.fill(own, 0, 1.0, "w").add_(theirs.fill(other, 0, 1.0, "w"))
        with torch.no_grad():
            staging.apply(own, staging.total(), outer)
        assert torch.allclose(own["w"], reference, atol=1e-6)


def test_an_outer_optimizer_with_groups_steps_as_one(monkeypatch):
    """Some of its numbers at a time, or all at once, as one that torch does not have."""
    monkeypatch.setattr(_staging, "_PIECE", 16)

    def make(parameters):  # the last is in no group
        groups = [{"params": parameters[:3], "lr": 0.5}, {"params": parameters[3:-1]}]
        return torch.optim.Adam(groups, lr=0.1)

    ends = []
    for at_once in (2, 5, None):
        torch.manual_seed(1)
        tensors = {"w": torch.randn(9, 16), "b": torch.randn(5), "last": torch.ones(3)}
        outer, staging = _staging.Outer(make, tensors), _staging.Staging(tensors, None)
        outer._at_once = at_once
        for _ in range(3):
            for name in ("w", "b"):
                tensors[name].add_(1)
            staging.fill(tensors, 0, 1.0, "w")
            with torch.no_grad():
                staging.apply(tensors, 1.0, outer)
        assert [len(group["params"]) for group in outer.optimizer.param_groups] == [3, 7]
        ends.append((tensors, outer.state()["optimizer"]["state"]))
    for tensors, state in ends[1:]:
        assert all(torch.equal(one, ends[0][0][name]) for name, one in tensors.items())
        assert state.keys() == ends[0][1].keys() and len(state) == 10


def test_zero_weight_keeps_nan_out():
    tensors = {"w": torch.tensor([float("nan")])}
    assert _staging.Staging(tensors, None).fill(tensors, 0, 0.0, "w").tolist() == [0, 0]


def test_a_mask_keeps_its_infinities(monkeypatch):
    monkeypatch.setattr(_staging, "_PIECE", 2)
    inf, lowest = float("inf"), torch.finfo(torch.float32).min
    given = [
        {"mask": torch.tensor([0.0, -inf, lowest, other, 1.0], dtype=kind), "w": torch.ones(2)}
        for kind, other in [(torch.float32, inf), (torch.float32, -inf)]
    ]
    stagings = [_staging.Staging(one, None, {"mask"}) for one in given]
    flats = [staging.fill(one, 0, 2.0, "w") for staging, one in zip(stagings, given)]
    flats[0].copy_(flats[0] + flats[1])
    stagings[0].apply(given[0], stagings[0].total(), None)
    assert given[0]["mask"].tolist() == [0, -inf, lowest, inf, 1]
    given[0]["mask"][0] = float("nan")
    with pytest.raises(syncd.Invalid, match="w: mask is NaN, and is not averaged"):
        stagings[0].fill(given[0], 0, 2.0, "w")


def test_a_model_with_a_mask_is_averaged(workers):
    def masked(value):
        model = Net(value)
        model.register_buffer("mask", torch.full((3, 3), float("-inf")).triu(1))
        return model

    two = [workers.more(rank, 0, world=2, model=masked(100 * rank)) for rank in range(2)]
    for one in two:
        one.granted()
    step(two, [4, 8])
    assert values(two) == [6, 6]
    assert torch.equal(two[1].model.mask, masked(0).mask)


def test_what_is_not_exchanged():
    model = Net(3)
    assert list(_staging.exchanged(model)) == ["w", "mean", "count"]
    assert _staging.first_difference(["a", "b"], ["a"]) == ("b", "nothing more")


def test_the_notice_of_a_loss_ends_the_wait_and_sends_nothing_after_it():
    why = [""]
    helper = _view_group.Helper(lambda: why[0])
    reached, released, checked = threading.Event(), threading.Event(), queue.Queue()

    def work(check):
        reached.set()
        released.wait(PATIENCE_S)
        try:
            check()
        except _view_group.Skipped as error:
            checked.put(error)
            raise
        checked.put(None)

    def lose():
        reached.wait(PATIENCE_S)
        why[0] = "1 of its workers left or were lost"
        helper.told()

    threading.Thread(target=lose, daemon=True).start()
    with pytest.raises(_view_group.Skipped, match="1 of its workers"):
        helper.run(work, 10 * PATIENCE_S)
    # What it reads may change from now on: nothing of that is sent.
    released.set()
    assert checked.get(timeout=PATIENCE_S) is not None
    why[0] = ""
    assert helper.run(lambda check: 7, PATIENCE_S) == 7, "on another thread"
    helper.close()


def test_a_helper_that_ends_waits_for_a_thread_that_was_left_to_itself():
    """In a call of torch at the end of the process it would abort that."""
    helper, entered, over = _view_group.Helper(lambda: "lost" * entered.is_set()), threading.Event(), []

    def work(check):
        entered.set()
        helper.told()
        with pytest.raises(_view_group.Skipped):
            while True:
                check()
        over.append(True)

    with pytest.raises(_view_group.Skipped, match="lost"):
        helper.run(work, PATIENCE_S)
    helper.end(PATIENCE_S)
    assert over == [True]


def test_a_notice_that_comes_while_the_view_is_read_is_kept(monkeypatch):
    job = st.run("bsp", Net(0))
    job._living, job._changed = {"a:1", "b:2"}, False

    class Member:
        rank, label, layout = 0, (1, 1), "x"

        @property
        def address(self):  # is read by this thread; the notice is the connection's
            job._told(SimpleNamespace(kind=syncd.EventKind.MEMBERS))
            return "a:1"

    monkeypatch.setattr(job, "_members", lambda step: [Member()])
    monkeypatch.setattr(job, "_average", lambda *_: None)
    job._granted(SimpleNamespace(view=7, view_size=2, view_rank=0))
    assert job._changed


def test_a_result_that_is_there_counts_though_a_member_is_lost():
    lost = itertools.chain([""], itertools.repeat("lost"))
    helper = _view_group.Helper(lambda: next(lost))
    done = threading.Event()

    def work(check):
        done.set()
        return 7

    assert helper.run(work, PATIENCE_S) == 7 or done.is_set()
    helper.close()


@in_memory_and_by_gloo
def test_failures_without_a_loss_end_in_an_error(workers, monkeypatch):
    monkeypatch.setattr(_averaging, "_FAILURES_MAX", 2)
    two = workers.start(2)
    Scripted.lost.update({(0, 2), (1, 2), (0, 3), (1, 3)})
    step(two, [1, 1])
    for one in two:
        one.train(1)
    # The second may learn first that the first has left, and goes on alone.
    said = [one._said.get(timeout=PATIENCE_S) for one in two]
    errors = [str(one.error) for one, word in zip(two, said) if word == "ended"]
    assert errors
    for error in errors:
        assert "the last 2 averagings failed though no worker was lost" in error
