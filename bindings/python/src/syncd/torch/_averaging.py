"""The form "averaging": every worker trains a model of its own, and all meet for their mean."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import logging
import os
import time
from typing import Any, Callable, Iterable, Iterator, TypeVar

import torch

from .. import _same_machine
from .._address import is_of_this_machine, own_address
from .._values import Event, EventKind, MemberState, Pushed, Step
from ..checkpoint import Saver
from ..client import Client, Worker
from ..errors import Error, Status, error_of
from . import _compat
from ._coordinated import _meetings
from ._job import Iteration, Job, Options, check_counts
from ._plan import Label, Plan, Shown, plan_of
from ._replica import (
    Joined,
    Nobody,
    check_whole,
    local_state,
    replica_of,
    spread_state,
)
from ._replica_saver import ReplicaSaver
from ._staging import Outer, Staging, check_dense, exchanged, first_difference, layout
from ._view_group import (
    Helper,
    Place,
    Skipped,
    ViewGroup,
    await_whole,
    broadcast_bytes,
    connect_store,
    finish,
    hold,
)

_log = logging.getLogger("syncd")

_LEAVE_S = 10.0  # how long the end waits for others who are still in the last averaging
_TELL_S = 5.0
_END_S = 1.0  # for threads that wait for somebody who has gone
_ASK_S = 0.1  # a mate's store
_FAILURES_MAX = 10  # in a row, without anybody lost: then something is wrong for good

T = TypeVar("T")


class AveragingJob(Job):
    """A job under bsp[:K] or elastic_bsp:R. Every worker trains a model of its own; where all meet, the
    parameters and floating-point buffers of each become the mean of all. Made by run():

        with st.run("elastic_bsp:8", model, optimizer=optimizer, weight="samples") as job:
            for step, (inputs, labels) in job.steps(loader, averagings=500):
                optimizer.zero_grad()
                criterion(model(inputs), labels).backward()
                optimizer.step()
                job.push()

    weight             each worker's weight in a mean: "samples" or "steps" since its last one; None: equal.
                       Who has not trained since then weighs 0
    outer              DiLoCo: a function that makes an optimizer of a list of parameters, such as
                       lambda params: torch.optim.SGD(params, lr=0.7, momentum=0.9, nesterov=True). Its
                       gradient is the previous mean less the new one. Large parameters come to it in
                       pieces: it must take each number by itself, as SGD and Adam do. None: parameters
                       become the mean
    averaging_timeout  seconds that one averaging may take; default: 120
    backend            "gloo" or "nccl" (a GPU for each worker); None: by where the parameters are
    replica            True: the ranks of torch.distributed's world train one model together, as under FSDP2, tensor
                       parallel or DDP, and are one worker of the job. Give rank= and world_size=: the number of
                       this replica, and how many there are. Each rank meets those of its own place in the other
                       replicas, so all must be made alike; what a rank holds of a DTensor stays where it is.
                       With checkpoint= each rank of one replica saves its part, and as many ranks continue; a
                       replica that ends saves nothing any more. SIGTERM is for all ranks of a replica
    shared_memory      True: workers that are all on one machine (in one process namespace) add up in shared
                       memory, which takes a third of gloo's time. False: by gloo there, too

    The workers of each averaging make a process group of their own; torch.distributed need not be
    initialized, and groups of yours are not touched. An averaging that fails, because a worker is lost or
    after the timeout, is skipped: each goes on from its own parameters. At the next one, whoever has not the
    latest average first takes parameters, buffers and the outer optimizer's state from a worker that has
    it, and weighs 0; so does one that joins or comes back, who also takes the optimizer's state, unless it has
    one from a checkpoint (its hyperparameters stay its own). At the start all take rank 0's. Integer buffers are that worker's. Where a
    buffer's mean is infinite, as a mask's is, each keeps its own number.
    A checkpoint holds an average, never parameters in between.

    Raises Error (SYNCD_E_UNSUPPORTED) for sharded parameters without `replica`, FSDP 1's, and bsp with backup
    workers. steps() raises Error (SYNCD_E_INVALID), which names the worker and the parameter, where models
    differ or a parameter is not finite.
    """

    form = "averaging"

    def __init__(
        self,
        options: Options,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer | None,
        *,
        weight: str | None = None,
        outer: Callable[[list[torch.nn.Parameter]], torch.optim.Optimizer] | None = None,
        averaging_timeout: float = 120.0,
        backend: str | None = None,
        replica: bool = False,
        shared_memory: bool = True,
    ) -> None:
        super().__init__(options, model, optimizer)
        if weight not in (None, "samples", "steps"):
            raise error_of(
                Status.E_INVALID,
                f'weight={weight!r}; allowed: "samples", "steps" or None',
            )
        if outer is not None and not callable(outer):
            kind = type(outer).__name__
            raise error_of(
                Status.E_INVALID,
                f"outer is of type {kind}; allowed: a function that makes an optimizer of parameters",
            )
        if not 0 < averaging_timeout <= 86400:
            raise error_of(
                Status.E_INVALID,
                f"averaging_timeout={averaging_timeout!r}; allowed: more than 0 and at most 86400 s",
            )
        if backend not in (None, "gloo", "nccl"):
            raise error_of(
                Status.E_INVALID,
                f'backend={backend!r}; allowed: "gloo", "nccl" or None',
            )
        if _meetings(options.policy) == (False, None):
            raise error_of(
                Status.E_UNSUPPORTED,
                f"{options.policy} has no barrier at which all workers meet; allowed for averaging: bsp[:K] "
                'without backup, elastic_bsp:R. bsp with backup workers runs as form="server"',
            )
        self._replica = replica_of(options, model) if replica else None
        self._saves_at_end = not replica  # its ranks may end one after the other
        if self._replica is None:
            check_whole(model)
        elif not self._replica.leads:
            self._options = options._replace(progress=False)
        check_dense(model)
        self._weight = weight
        self._make_outer = outer
        self._timeout = float(averaging_timeout)
        on_gpu = any(one.is_cuda for one in model.parameters())
        self._backend = backend or ("nccl" if on_gpu else "gloo")
        self._shared_memory = shared_memory and self._backend == "gloo"
        self._outer: Outer | None = None
        self._loaded: dict[str, Any] | None = None  # of the outer optimizer, in a checkpoint
        self._label: Label | None = None
        self._averagings = 0
        self._wanted: int | None = None
        self._all_have_it = False  # the last average that is wanted
        self._view = 0
        self._skipped = False  # a batch, perhaps after the optimizer's step
        self._trained_steps = self._trained_samples = 0  # since the average of the label
        self._failures = 0
        self._batch: Any = None
        self._peers: list[Shown] = []  # of this view, itself among them
        self._living: set[str] = set()  # by the address of the store
        self._changed = True  # since then
        self._helper = Helper(self._broken)
        self._store: Any = None
        self._address = ""
        self._mates: list[str] = []  # addresses of all ranks of this replica
        self._place = 0 if self._replica is None else self._replica.rank  # among them
        self._mates_of: dict[str, list[str]] = {}  # by the address of their leader
        self._daemon = ""  # that the leader has found
        self._plan: Plan | None = None  # of this view
        self._asked_at = 0.0  # whether a mate has failed
        self._layout: list[str] = []
        self._digest = ""  # of it
        self._size = 0  # of the parameters, in bytes
        self._staging: Staging | None = None
        self._made: list[ViewGroup] = []  # of the latest view: one, once it is made
        self._group: ViewGroup | None = None  # likewise, once its average is whole

    @property
    def averagings(self) -> int:
        """Of the whole training: those before a checkpoint, or before this worker joined, count too."""
        return self._averagings

    @property
    def label(self) -> Label | None:
        """(epoch, view) of the last average that this worker has whole; None: it has none yet."""
        return self._label

    def steps(
        self,
        loader: Iterable[Any] | None = None,
        *,
        averagings: int | None = None,
        iterations: int | None = None,
        epochs: int | None = None,
    ) -> Iterator[tuple[Iteration, Any]]:
        """As Job.steps(), and with `averagings`: ends at that averaging of the whole training, with the
        mean as parameters. All workers end at the same one.

        `iterations` and `epochs` are this worker's own: it then leaves as finished, and the others go on.
        """
        check_counts(averagings=averagings, iterations=iterations, epochs=epochs)
        if loader is None and averagings is None and iterations is None:
            raise error_of(
                Status.E_INVALID,
                "steps() without a loader; allowed with averagings=N or iterations=N",
            )
        if averagings is None and iterations is None and epochs is None:
            epochs = 1
        self._wanted = averagings
        if averagings is None or averagings > self._averagings:
            self._all_have_it = False  # what an earlier call has ended with

        def ended() -> bool:
            return self._all_have_it or (iterations is not None and self.iteration >= iterations)

        return self._noted(self._steps(loader, epochs, ended))

    def _noted(self, steps: Iterator[tuple[Iteration, Any]]) -> Iterator[tuple[Iteration, Any]]:
        for step, batch in steps:
            self._batch = batch
            yield step, batch

    def push(self, loss: Any = None, samples: int = 0) -> Pushed:
        """Tells that this worker has done its iteration, its optimizer's step included.

        loss     a number, or a tensor of one
        samples  in the batch; 0: the length of its first tensor. Of use with weight="samples", and to those
                 who look at the job

        Raises Error (SYNCD_E_STATE) when it is called twice for a batch.
        """
        self._check_not_done()
        length = _length(self._batch) if samples == 0 else samples
        if length is None and self._weight == "samples":
            raise error_of(
                Status.E_INVALID,
                f'{self._who()}: weight="samples", and the batch is no tensor and holds none; call '
                "job.push(samples=len(inputs))",
            )
        samples = length or 0
        pushed = self._push(loss, samples, self._size)
        self._trained_steps += 1
        self._trained_samples += samples
        return pushed

    # ---- What the base asks for

    def _open_client(self) -> Client:
        if self._replica is None:
            return super()._open_client()
        made: list[Any] = []

        def connect() -> str:
            made.append(super(AveragingJob, self)._open_client())
            return made[0].address or ""

        self._daemon = self._replica.share(connect)
        directory = self._options.checkpoint
        given = None if directory is None else os.path.abspath(directory), sorted(self._options.state)
        of_all = self._replica.gather(given)
        for rank, one in enumerate(of_all):
            if one != of_all[0]:
                if made:
                    made[0].close()
                raise error_of(
                    Status.E_INVALID,
                    f"checkpoint= and state= of rank {rank} are {one}, and of rank 0 {of_all[0]}; all ranks of a "
                    "replica must give the same",
                )
        client: Client = made[0] if made else Nobody()
        return client

    def _join(self, resume_at: int | None) -> Worker:
        self._open_store()
        if self._replica is None:
            return super()._join(resume_at)
        made: list[Any] = []

        def join() -> Joined:
            worker = super(AveragingJob, self)._join(resume_at)
            made.append(worker)
            return Joined(worker.job, worker.rank, worker.world_size)

        # The leader's store tells the others, before they hear of the leader.
        self._mates = self._replica.gather(self._address)
        self._store.set("mates", json.dumps(self._mates))
        joined = self._replica.share(join)
        worker: Worker = made[0] if made else joined
        return worker

    def _open_store(self) -> None:
        if self._store is None:
            self._store = _compat.stores().open()
            self._address = f"{self._own_host()}:{self._store.port}"

    def _own_host(self) -> str:
        if self._replica is None:
            return super()._own_host()
        # The environment speaks of this replica's ranks alone.
        if not all(is_of_this_machine(one) for one in self._daemon.split(",")):
            return own_address(self._daemon)
        if len(set(self._replica.gather(_same_machine.place()))) > 1:
            raise error_of(
                Status.E_INVALID,
                f"a replica on several machines knows the daemon as {self._daemon}; allowed: an address at "
                "which all of them reach it",
            )
        return "127.0.0.1"

    def _checkpoint_iteration(self) -> int | None:
        if self._replica is None or self._options.checkpoint is None:
            return super()._checkpoint_iteration()
        return self._replica.share(super()._checkpoint_iteration)

    def _make_saver(self, directory: str | os.PathLike[str]) -> Saver:
        if self._replica is None:
            return super()._make_saver(directory)
        return ReplicaSaver(self._replica, self.worker, directory, self._saved, self.model, self.optimizer)

    def _mind_sigterm(self) -> None:
        if self._replica is None or self._replica.leads:
            super()._mind_sigterm()
        else:
            self._replica.outlast_sigterm()

    def _join_options(self) -> dict[str, Any]:
        options = {"views": True, "on_event": self._told, "data": self._address.encode()}
        if self._replica is not None:
            options["launch"] = ""  # none: each is started by itself, under any name
        return options

    def _begin(self) -> Step:
        if self._replica is None:
            return super()._begin()
        return self._replica.share(super()._begin)

    def _told(self, event: Event) -> None:
        if event.kind is EventKind.MEMBERS:
            self._changed = True
            self._helper.told()

    def _opened(self) -> None:
        tensors = self._exchanged()
        self._layout = layout(tensors, self.model)
        if self._replica is not None:
            of_all = enumerate(self._replica.gather(self._layout))
            self._layout = [f"rank {rank}: {line}" for rank, lines in of_all for line in lines]
        self._digest = hashlib.sha256("\n".join(self._layout).encode()).hexdigest()[:16]
        self._size = sum(one.numel() * one.element_size() for one in self.model.parameters())
        if self._make_outer is not None:
            names = dict(self.model.named_parameters())
            self._outer = Outer(
                self._make_outer,
                {name: one for name, one in tensors.items() if name in names},
            )
            if self._loaded is not None:
                self._outer.load(self._loaded)
        self._store.set("layout", json.dumps(self._layout))

    def _exchanged(self) -> dict[str, torch.Tensor]:
        if self._replica is not None:
            _compat.reshard(self.model)
        return exchanged(self.model)

    def _begin_data(self) -> bytes:
        shown = self._mates[0] if self._mates else self._address
        return Shown(
            self.worker.rank, shown, self._label, self._averagings, self._digest
        ).encode()

    def _state(self) -> dict[str, Any]:
        outer = None if self._outer is None else self._outer.state()
        return {"label": self._label, "averagings": self._averagings, "outer": outer}

    def _load_state(self, state: dict[str, Any]) -> None:
        epoch, view = state["label"]
        self._label = epoch, view
        self._averagings = state["averagings"]
        self._loaded = state["outer"]
        if (self._loaded is None) != (self._make_outer is None):
            has = "no" if self._loaded is None else "an"
            raise ValueError(f"it was saved with {has} outer optimizer")

    def _pass_over(self) -> None:
        self._skipped = True
        super()._pass_over()

    def _may_save(self) -> bool:
        """Only the view's own average."""
        trained = self._trained_steps > 0 or self._skipped
        return self._label is not None and self._label[1] == self._view and not trained

    def _closing(self, error: BaseException | None) -> None:
        if error is None and self._group is not None:
            # The others may still need this process: for the average, or to learn that all have it.
            group = self._group
            wait = group.await_seen if self._all_have_it else group.await_whole
            with contextlib.suppress(Skipped):  # they end it themselves
                self._run(group, wait, _LEAVE_S)

    def _closed(self) -> None:
        if self._replica is not None:
            self._replica.close()
        self._helper.end(_END_S)
        self._made = []
        self._group = self._store = self._staging = None

    # ---- Averaging

    def _granted(self, step: Step) -> None:
        if step.view == 0:
            raise error_of(
                Status.E_UNSUPPORTED,
                f"{self._who()}: the job has no views, because its first worker joined without them; stop "
                "it, or give this one another name",
            )
        if step.view == self._view:
            return
        self._view = step.view
        if step.view_size == 1:
            members = [Shown.decode(self._begin_data())]
        else:
            members = self._members(step)
        self._peers = members
        # The notice of a join may come after the grant. (No |=: a notice that comes meanwhile stays.)
        if any(one.address not in self._living for one in members):
            self._changed = True
        plan = self._plan = plan_of([one.label for one in members], step.view)
        try:
            if self._by_leader(lambda: self._all_alike(members, plan)):
                self._average(plan, members, step.view_rank)
        except Skipped as error:
            self._skip(str(error), plan, members)
        except BaseException:
            self._drop_group()
            raise

    def _by_leader(self, make: Callable[[], T]) -> T:
        return make() if self._replica is None else self._replica.share(make)

    def _members(self, step: Step) -> list[Shown]:
        found = []
        for one in self._by_leader(lambda: self.worker.view(step.view).members):
            try:
                found.append(Shown.decode(one.data))
            except (ValueError, TypeError, LookupError) as error:
                raise error_of(
                    Status.E_INVALID,
                    f"{self._who()}: {one.name} on {one.host} has joined this job by other means than "
                    f"syncd.torch.run(), or by another version of it ({error}); all must use the same",
                ) from error
        return found

    def _broken(self) -> str:
        """Why this view's averaging is in vain."""
        if self._replica is not None and time.monotonic() - self._asked_at > _ASK_S:
            self._asked_at = time.monotonic()
            if self._plan and self._store.add(f"{self._plan.name}/gone", 0) > 0:
                return "another rank of this replica has failed in it, or has heard of a loss"
        return self._lost()

    def _lost(self) -> str:
        """Who of this view has left the job, or was lost, since it was granted. Mates hear of it from their
        leader."""
        if self._replica is not None and not self._replica.leads:
            return ""
        if self._changed:
            self._changed = False
            try:
                members = self.worker.members(_TELL_S).members
            except Error:
                self._changed = True  # without a daemon: asked again
                return ""
            there = (MemberState.ACTIVE, MemberState.DISCONNECTED)
            # By address: another process may have the rank by now.
            self._living = {one.data.decode() for one in members if one.state in there}
        gone = [f"worker {one.rank}" for one in self._peers if one.address not in self._living]
        return f"{', '.join(gone)} left or was lost" if gone else ""

    def _drop_group(self) -> None:
        """Collectives of it may still be under way, with the staging that they write to."""
        made, self._made, self._group, self._staging = self._made, [], None, None
        for group in made:
            group.say_failed()
            group.abort()
            hold(group, self._timeout)

    def _skip(self, why: str, plan: Plan, members: list[Shown]) -> None:
        self._drop_group()
        lost = self._by_leader(self._lost)
        if len(members) > 1:
            # The others may not hear of the loss: it comes back before they ask.
            first = members[0].address
            ranks = [first] if self._replica is None else self._mates_of.get(first)
            if ranks:  # else nobody has met in this view
                self._tell([ranks[self._place]], f"{plan.name}/failed", not lost)
        self._failures = 0 if lost else self._failures + 1
        _log.warning("%s: the averaging of view %d is skipped: %s", self._who(), self._view, why)
        if self._failures >= _FAILURES_MAX:
            raise error_of(
                Status.E_BROKEN,
                f"{self._who()}: the last {_FAILURES_MAX} averagings failed though no worker was lost, the "
                f"latest with: {why}; if the workers reach each other only by another network, set "
                "GLOO_SOCKET_IFNAME or NCCL_SOCKET_IFNAME, and if it takes long, averaging_timeout=",
            )

    def _tell(self, addresses: Iterable[str], key: str, waits: bool) -> None:
        """Adds to `key` in these workers' stores."""
        tell = Helper(lambda: "")

        def work(_: Callable[[], None]) -> None:
            for address in addresses:
                with contextlib.suppress(RuntimeError):
                    connect_store(address).add(key, 1)

        with contextlib.suppress(Skipped):
            if waits:
                tell.run(work, _TELL_S)
            else:
                tell.post(work)
        tell.close()

    def _own_weight(self) -> float:
        if self._weight == "samples":
            return float(self._trained_samples)
        return float(
            self._trained_steps if self._weight == "steps" else min(1, self._trained_steps)
        )

    def _average(self, plan: Plan, members: list[Shown], rank: int) -> None:
        place = Place(plan.name, plan.number, rank, self._of_my_place(members))
        weight = self._own_weight()
        if self._replica is not None:
            weight = sum(self._replica.gather(weight)) / self._replica.size
        if rank in plan.takers:
            weight = 0.0
        tensors = self._exchanged()
        staging = self._staging or Staging(
            tensors,
            torch.device("cpu") if self._backend == "gloo" else None,
            tensors.keys() - dict(self.model.named_parameters()).keys(),
            self._shared_memory,
        )
        joins = any(members[at].label is None for at in plan.takers)
        group = self._group_of_before(place, members)
        self._synchronize(tensors)  # the thread that copies them has a stream of its own
        # A thread that is abandoned while it makes its group may be done in a later averaging.
        of_this: list[ViewGroup] = [] if group is None else [group]
        self._made = of_this
        self._group = None  # until this averaging is whole

        def collect(check: Callable[[], None]) -> tuple[ViewGroup | None, bytes | None]:
            made = group
            if made is None and place.size > 1:
                made = ViewGroup(place, self._backend, self._timeout, check, staging.segment)
                of_this.append(made)
            taken = None
            if made is not None and plan.takers:
                # Read before check(): nothing torn leaves this process.
                given = self._packed(tensors, joins) if rank == plan.source else None
                where = staging.buckets[0].flat.device if staging.buckets else torch.device("cpu")
                taken = broadcast_bytes(made, given, plan.source, where, check)
            if made is None or made.shared_sum is None:
                self._by_group(made, staging, plan.source, tensors, weight, check)
            else:
                made.shared_sum.begin()
                self._fill(staging, tensors, weight)
                check()
                made.shared_sum.add_up(plan.number, plan.source, check)
            self._synchronize(tensors)
            return made, taken if rank in plan.takers else None

        def averaged() -> tuple[ViewGroup | None, bytes | None]:
            if group is not None and not plan.takers:
                return self._run(group, collect, self._timeout)  # type: ignore[no-any-return]
            return self._helper.run(collect, self._timeout)  # type: ignore[no-any-return]

        made, taken = self._together(averaged)
        with torch.no_grad():
            if taken is not None:
                self._unpack(taken, tensors)
            total = staging.total()
            if total > 0:
                staging.apply(tensors, total, self._outer)
                self._averagings += 1
            self._synchronize(tensors)
        self._label = plan.label
        self._trained_steps = self._trained_samples = self._failures = 0
        self._skipped = False
        self._group, self._staging = made, staging
        self._confirm()

    def _of_my_place(self, members: list[Shown]) -> tuple[str, ...]:
        """The addresses of those who have this rank's place in the view's replicas."""
        leaders = [one.address for one in members]
        if self._replica is None:
            return tuple(leaders)
        missing = [one for one in leaders if one not in self._mates_of]
        if missing:

            def read(_: Callable[[], None]) -> dict[str, list[str]]:
                return {one: json.loads(connect_store(one).get("mates")) for one in missing}

            def ask() -> dict[str, list[str]]:
                found: dict[str, list[str]] = self._helper.run(read, self._timeout)
                return found

            known = {**self._mates_of, **self._replica.share(ask)}
            self._mates_of = {one: known[one] for one in leaders}
        return tuple(self._mates_of[one][self._place] for one in leaders)

    def _together(self, work: Callable[[], T]) -> T:
        """work() on all ranks of the replica, or on none: what it raises on one is raised on all."""
        if self._replica is None:
            return work()
        assert self._plan is not None
        gone, told = f"{self._plan.name}/gone", False

        def tell() -> None:
            nonlocal told
            if not told:
                told = True
                self._tell([one for one in self._mates if one != self._address], gone, True)

        def meanwhile() -> None:
            # A mate that waits for one of its place does not hear of a loss.
            if not told and self._broken():
                tell()

        failure: BaseException | None = None
        found: Any = None
        try:
            found = work()
        except (Skipped, Error) as error:
            failure = error
            tell()
        self._replica.agree(failure, meanwhile, self._timeout + _LEAVE_S)
        return found  # type: ignore[no-any-return]

    def _by_group(
        self,
        made: ViewGroup | None,
        staging: Staging,
        source: int,
        tensors: dict[str, torch.Tensor],
        weight: float,
        check: Callable[[], None],
    ) -> None:
        """Sums of the buckets, and the source's integers: while one bucket is on its way, the next is filled."""
        works = []
        for at in range(len(staging.buckets)):
            flat = staging.fill(tensors, at, weight, self._who())
            check()
            if made is not None:
                works.append(made.all_reduce(flat))
        if staging.integers is not None:
            staging.fill_integers(tensors)
            check()
            if made is not None:
                works.append(made.broadcast(staging.integers, source))
        for work in works:
            finish(made, work, check)

    def _fill(self, staging: Staging, tensors: dict[str, torch.Tensor], weight: float) -> None:
        for at in range(len(staging.buckets)):
            staging.fill(tensors, at, weight, self._who())
        if staging.integers is not None:
            staging.fill_integers(tensors)

    def _confirm(self) -> None:
        """Says to the others that this worker has the average whole. At the end waits until all have said so:
        they end at the same one."""
        at_end = self._wanted is not None and self._averagings >= self._wanted
        if self._group is None:
            self._all_have_it = at_end
        elif at_end:
            group = self._group
            with contextlib.suppress(Skipped):
                self._together(lambda: self._await_end(group))
                self._all_have_it = True
        elif self._group.shared_sum is not None:
            self._group.say_whole(self._group.place)
        else:
            say_whole, place = self._group.say_whole, self._group.place
            self._helper.post(lambda _: say_whole(place))

    def _run(self, group: ViewGroup, work: Callable[..., Any], timeout_s: float) -> Any:
        """Nothing blocks in shared memory: no switch of threads."""
        run: Any = self._helper.run if group.shared_sum is None else self._helper.run_here
        return run(work, timeout_s)

    def _await_end(self, group: ViewGroup) -> None:
        """Until all have it. Raises Skipped if it is not known that they do."""

        def end(check: Callable[[], None]) -> None:
            group.say_whole(group.place)
            group.await_whole(check)
            group.say_seen()

        try:
            self._run(group, end, self._timeout)
        except Skipped as error:
            # One that knows already that all have it may leave, or be lost, before this worker hears so.
            with contextlib.suppress(Skipped):
                if self._helper.run(lambda _: group.is_whole(), _TELL_S, watch=False):
                    return
            # This worker's own average is whole all the same.
            _log.warning(
                "%s: not all have the average of view %d: %s", self._who(), self._view, error
            )
            raise

    def _group_of_before(self, place: Place, members: list[Shown]) -> ViewGroup | None:
        """The group of the last view, if all had its average whole and are the same. All members decide alike,
        from what each shows; one that missed the last view, or failed in it, has no such label.
        """
        group = self._group
        if group is None or self._label is None or self._label[1] != self._view - 1:
            return None
        if group.place.addresses != place.addresses:
            return None
        if any(one.label != self._label for one in members):
            return None
        group.place = place
        return group

    def _synchronize(self, tensors: dict[str, torch.Tensor]) -> None:
        for device in {one.device for one in tensors.values() if one.is_cuda}:
            torch.cuda.synchronize(device)

    # ---- What those take who have not the latest average

    def _packed(self, tensors: dict[str, torch.Tensor], joins: bool) -> bytes:
        state = {
            "tensors": [one.cpu() for one in tensors.values()],  # of DTensors this rank's part
            "outer": None if self._outer is None else self._outer.state(),
            "optimizer": None,
            "averagings": self._averagings,
        }
        if joins and self.optimizer is not None:
            of_optimizer = self.optimizer.state_dict()["state"]
            state["optimizer"] = of_optimizer if self._replica is None else local_state(of_optimizer)
        file = io.BytesIO()
        torch.save(state, file)
        return file.getvalue()

    def _unpack(self, data: bytes, tensors: dict[str, torch.Tensor]) -> None:
        state = _compat.load_tensors(io.BytesIO(data))
        if (state["outer"] is None) != (self._outer is None):
            raise error_of(
                Status.E_INVALID,
                f"{self._who()}: outer= is given here or there only; all workers must give the same",
            )
        for one, taken in zip(tensors.values(), state["tensors"]):
            one.copy_(taken)
        if self._outer is not None:
            self._outer.load(state["outer"])
        if self._label is None and self.optimizer is not None and state["optimizer"]:
            own = self.optimizer.state_dict()
            if self._replica is not None:
                state["optimizer"] = spread_state(self.optimizer, state["optimizer"])
            self.optimizer.load_state_dict({**own, "state": state["optimizer"]})
        self._averagings = state["averagings"]
        _log.info(
            "%s has taken the parameters after %d averagings",
            self._who(),
            self._averagings,
        )

    # ---- Models that differ

    def _all_alike(self, members: list[Shown], plan: Plan) -> bool:
        """Whether all models have the same tensors. False: a newcomer's has not, which it is told itself.
        Raises Invalid at the start, and in that newcomer."""
        source = members[plan.source]
        odd = [one for one in members if one.layout != source.layout]
        if not odd:
            return True
        mine = [one for one in odd if one.rank == self.worker.rank]
        first = mine[0] if mine else odd[0]
        if not mine and first.label is None and not plan.at_start:
            _log.warning(
                "%s: worker %d has another model, and is refused; the averaging of view %d is skipped",
                self._who(), first.rank, self._view,
            )  # fmt: skip
            return False
        readers = len(members) if plan.at_start else 0
        difference = ""
        try:
            has, source_has = self._helper.run(
                lambda _: first_difference(*_layouts(first, source)),
                _TELL_S,
                watch=False,
            )
            difference = f": it has {has}, where worker {source.rank} has {source_has}"
            if self.worker.rank in (
                first.rank,
                source.rank,
            ):  # the others still ask this one
                own = self._store
                self._helper.run(
                    lambda check: await_whole(own, "layout", "read", readers, check),
                    _TELL_S,
                    watch=False,
                )
        except Skipped:
            pass  # the other one is gone already
        raise error_of(
            Status.E_INVALID,
            f"{self._who()}: the model of worker {first.rank} differs from worker {source.rank}'s"
            f"{difference}; all workers must make the same model",
        )


def _layouts(*of: Shown) -> list[list[str]]:
    """From these workers' stores."""
    stores = [connect_store(one.address) for one in of]
    found = [json.loads(store.get("layout")) for store in stores]
    for store in stores:
        store.add("layout/read", 1)
    return found


def _length(batch: Any) -> int | None:
    """Of a batch's first tensor; None: it holds none."""
    if isinstance(batch, torch.Tensor):
        return len(batch) if batch.dim() else None
    if isinstance(batch, dict):
        batch = list(batch.values())
    if isinstance(batch, (tuple, list)):
        for one in batch:
            length = _length(one)
            if length is not None:
                return length
    return None
