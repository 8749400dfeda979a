"""The form of hop and notify_ack: every worker trains a model of its own and mixes it with those of its
neighbours in a graph, without a server and without a collective.

The order of calls is that of the policies' page. Under hop it is Hop's parallel order:

    begin(k)   send the parameters, push; the loop's body computes the gradient of them;
               mix(): parameters = weighted mean of the updates of k, then the optimizer's step
    notify_ack: the loop's body; mix(): the optimizer's step, send, push, parameters = weighted mean
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import math
import re
import time
from typing import Any, Callable, Iterator, Sequence

import torch

from .._library import ffi
from .._observe import _Ear
from .._peers import Exchange
from .._values import Event, EventKind, Step, Update
from ..client import Worker
from ..errors import Error, Status, Stopped, WrongIteration, error_of
from ..update_queue import UpdateQueue
from ._job import Job, Options
from ._staging import exchanged

_log = logging.getLogger("syncd")

_MAX_IG_DEFAULT = 4  # the daemon's; a test compares them
_ALIGNMENT = 8  # of each kind of numbers in an update
_FLUSH_S = 10.0
_ASK_AGAIN_S = 0.05
_SAY_S = 10.0


class _Rules:
    """What a policy's text says that concerns this worker's loop."""

    def __init__(self, policy: str) -> None:
        numbers = dict(re.findall(r",\s*(\w+)=(\d+)", policy))
        self.acknowledges = policy.strip().startswith("notify_ack")
        self.batches = int(numbers.get("every", 1)) if self.acknowledges else 1
        self.slots = 1
        if not self.acknowledges:
            self.slots = UpdateQueue.slots_needed(
                int(numbers.get("max_ig", _MAX_IG_DEFAULT)),
                int(numbers.get("staleness", 0)),
                int(numbers.get("skip", 0)) > 0,
            )


class _Flat:
    """A model's parameters and persistent floating-point buffers as one update: a buffer for each dtype, one
    behind the other. They are looked up by name each time: a model may replace them.

    who  says whose model it is
    """

    def __init__(self, model: torch.nn.Module, who: Callable[[], str]) -> None:
        self._model, self._who = model, who
        self._parameters = set()
        for name, parameter in model.named_parameters():
            if not parameter.is_floating_point():
                raise error_of(
                    Status.E_INVALID,
                    f"parameter {name} is of {parameter.dtype}; allowed: floating-point parameters",
                )
            self._parameters.add(name)
        entries = list(_mixed(model).items())
        # Stable: within a dtype in the model's order.
        entries.sort(key=lambda entry: str(entry[1].dtype))
        self._schema = {name: (one.dtype, one.shape) for name, one in entries}
        self._runs: list[tuple[torch.dtype, int, int]] = []  # dtype, first byte, numbers
        at = 0
        for _, tensor in entries:
            if not self._runs or self._runs[-1][0] != tensor.dtype:
                at = -(-at // _ALIGNMENT) * _ALIGNMENT
                self._runs.append((tensor.dtype, at, 0))
            dtype, first, numbers = self._runs[-1]
            self._runs[-1] = (dtype, first, numbers + tensor.numel())
            at += tensor.numel() * tensor.element_size()
        self.bytes = max(-(-at // _ALIGNMENT) * _ALIGNMENT, _ALIGNMENT)
        shapes = "\n".join(f"{name} {one.dtype} {tuple(one.shape)}" for name, one in entries)
        self.schema = hashlib.blake2b(shapes.encode(), digest_size=16).digest()
        numbers = sum(tensor.numel() for _, tensor in entries)
        self.about = f"{len(entries)} tensors with {numbers} numbers"

    def _tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """The model's tensors as they are now, in the update's order."""
        found = _mixed(self._model)
        for name in [*self._schema, *found]:
            now = _about(found[name].dtype, found[name].shape) if name in found else "missing"
            was = _about(*self._schema[name]) if name in self._schema else "missing"
            if now != was:
                kind = "parameter" if name in self._parameters else "tensor"
                raise error_of(
                    Status.E_INVALID,
                    f"{self._who()}: {kind} {name} is {now}, and was {was} when the worker joined; allowed: "
                    "the same names, shapes and dtypes throughout. Convert the model before run()",
                )
        return ((name, found[name]) for name in self._schema)

    def buffer(self) -> torch.Tensor:
        return torch.zeros(self.bytes, dtype=torch.uint8)

    def runs(self, buffer: torch.Tensor) -> list[torch.Tensor]:
        return [
            buffer[first : first + numbers * _size(dtype)].view(dtype)
            for dtype, first, numbers in self._runs
        ]

    def _views(self, runs: Sequence[torch.Tensor]) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Each tensor of the model with its place in these runs."""
        left = iter(runs)
        run, dtype, at = None, None, 0
        for _, tensor in self._tensors():
            if tensor.dtype != dtype:
                run, dtype, at = next(left), tensor.dtype, 0
            assert run is not None
            yield tensor, run[at : at + tensor.numel()].view(tensor.shape)
            at += tensor.numel()

    def pack(self, buffer: torch.Tensor) -> None:
        for tensor, place in self._views(self.runs(buffer)):
            place.copy_(tensor)

    def unpack(self, runs: Sequence[torch.Tensor]) -> None:
        for tensor, place in self._views(runs):
            tensor.copy_(place)

    def sums(self) -> list[torch.Tensor]:
        """Where models are added up: a run for each dtype, in a wide one."""
        return [torch.zeros(numbers, dtype=_wide(dtype)) for dtype, _, numbers in self._runs]

    def scale_into(self, sums: Sequence[torch.Tensor], factor: float) -> None:
        """sums = the model, times `factor`."""
        for tensor, place in self._views(sums):
            if tensor.dtype == place.dtype:
                torch.mul(tensor, factor, out=place)
            else:
                place.copy_(tensor).mul_(factor)

    def take_divided(self, sums: Sequence[torch.Tensor], divisor: float) -> None:
        """The model = sums, by `divisor`."""
        for tensor, place in self._views(sums):
            if tensor.dtype == place.dtype:
                torch.div(place, divisor, out=tensor)
            else:
                tensor.copy_(place.div_(divisor))

    def spoilt(self, buffer: torch.Tensor) -> str | None:
        """Which tensor of a packed model is not a number; None: none."""
        if all(math.isfinite(float(run.sum(dtype=_wide(run.dtype)))) for run in self.runs(buffer)):
            return None
        for name, tensor in self._tensors():
            is_parameter = name in self._parameters
            # Masks are buffers with infinities.
            wrong = not torch.isfinite(tensor).all() if is_parameter else torch.isnan(tensor).any()
            if wrong:
                return f"{'parameter' if is_parameter else 'buffer'} {name}"
        return None


def _mixed(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: one for name, one in exchanged(model).items() if one.is_floating_point()}


def _about(dtype: torch.dtype, shape: torch.Size) -> str:
    return f"{str(dtype).rpartition('.')[2]} {list(shape)}"


def _memory(buffer: torch.Tensor) -> Any:
    """The buffer's bytes, without numpy, which torch does not need. Lives as long as the buffer."""
    return ffi.buffer(ffi.cast("char *", buffer.data_ptr()), buffer.numel())


def _size(dtype: torch.dtype) -> int:
    return int(torch.empty(0, dtype=dtype).element_size())


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


class NeighbourJob(Job):
    """A worker under hop:GRAPH,... or notify_ack:GRAPH,..., made by run().

        with st.run("hop:ring_based,backup=1,max_ig=4", model, optimizer=opt) as job:
            for step, (x, y) in job.steps(loader, iterations=1000):
                opt.zero_grad()
                loss = criterion(model(x), y)
                loss.backward()
                job.mix(loss)

    mix() calls optimizer.step(); the loop does not. Parameters and persistent floating-point buffers are
    mixed. Models of workers differ a little, also at the end. One iteration is one mix; under
    notify_ack:GRAPH,every=N a mix of N batches.

    At the start all take the parameters of worker 0. One that comes back takes what a neighbour sent last;
    its optimizer begins anew, or from the checkpoint. A checkpoint has each worker's own part, so that all
    workers must be there to save it and to continue from it.

    Options of run():

    shared_memory     True: workers on one machine (in one process namespace) read each other's updates in
                      shared memory, and others get them by TCP. False: all by TCP. Each worker keeps
                      max_ig + 2 updates (hop; more with staleness and skip) in shared memory
    host              at which other machines reach this process; None: the address from which it reaches
                      the daemon. The port is any that is free. TCP is not encrypted; who is no member of
                      the job is refused
    exchange_timeout  seconds that an update which its sender has pushed may take to arrive; then the mean
                      is made without it, with a warning
    """

    form = "neighbours"
    _sharded = True
    _done_by = "mix()"

    def __init__(
        self,
        options: Options,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer | None,
        *,
        shared_memory: bool = True,
        host: str | None = None,
        exchange_timeout: float = 60.0,
    ) -> None:
        super().__init__(options, model, optimizer)
        if optimizer is None:
            raise error_of(
                Status.E_INVALID,
                f"optimizer=None under {options.policy}; allowed: the model's optimizer",
            )
        if not exchange_timeout > 0:
            raise error_of(
                Status.E_INVALID, f"exchange_timeout={exchange_timeout}; allowed: seconds above 0"
            )
        self.mixed = 0
        """Updates of others that were mixed in."""
        self.missing = 0
        """Those that should have been, and whose sender was lost before they had come."""
        self._rules = _Rules(options.policy)
        self._shared_memory = shared_memory
        self._host = host
        self._timeout = exchange_timeout
        self._exchange: Exchange
        self._step: Step | None = None  # granted last
        self._batches = 0  # of this iteration that were computed
        self._dropped = False  # this iteration: nothing of it is sent or mixed any more
        self._has_parameters = False
        self._continue_at: int | None = None
        self._loss: tuple[Any, int] = (None, 0)

    # ---- The base's hooks

    def _join(self, resume_at: int | None) -> Worker:
        flat = self._flat = _Flat(self.model, self._who)
        self._own, self._received = flat.buffer(), flat.buffer()
        self._sums = flat.sums()
        self._continue_at = resume_at
        self._exchange = Exchange(
            flat.bytes,
            self._rules.slots,
            flat.schema,
            flat.about,
            self._host or self._own_host(),
            self._timeout,
            self._shared_memory,
        )
        try:
            return super()._join(resume_at)
        except BaseException:
            self._exchange.close()
            raise

    def _join_options(self) -> dict[str, Any]:
        hang = _Ear(None)

        def hear(event: Event) -> None:
            if event.kind == EventKind.MEMBERS:
                self._exchange.members_changed = True
            hang(event)

        return {"data": self._exchange.card.encode(), "on_event": hear}

    def _opened(self) -> None:
        self._exchange.start(self.worker.rank, self._who(), self.worker.members)

    def _granted(self, step: Step) -> None:
        before = self._step
        if before is not None and (
            self._dropped or (step.iteration != before.iteration + 1 and not step.skip)
        ):
            # The daemon had given this worker up, and has taken it back: it may repeat iterations, and its
            # parameters may be old.
            self._exchange.start_over()
            self._has_parameters = False
        self._step, self._batches, self._dropped = step, 0, False
        if not self._has_parameters:
            self._take_parameters(step)
        if step.skip:
            with self._unless_given_up():
                self._mix_in(self.worker.collect(step.iteration - 1))

    def _continues(self) -> bool:
        return not self._dropped and 0 < self._batches < self._rules.batches

    def _starts(self, step: Step) -> None:
        if not self._rules.acknowledges and not self._dropped:
            with self._unless_given_up():
                self._send(step)

    def _pass_over(self) -> None:
        self.mix(apply=lambda: None)

    def _closing(self, error: BaseException | None) -> None:
        if error is None:
            self._exchange.flush(_FLUSH_S)
            self._await_readers()

    def _await_readers(self) -> None:
        """Under notify_ack every update is read: of one that has left the daemon names none any more. The next
        iteration, which is granted and not begun, may send once all have read the last one."""
        step = self._grant
        if not self._rules.acknowledges or step is None or step.stop or self._used or self._dropped:
            return
        with contextlib.suppress(Error):  # the job was stopped, or there is no daemon
            self.worker.targets(step.iteration)

    def _closed(self) -> None:
        self._exchange.close()

    # ---- The loop's body

    def mix(
        self,
        loss: Any = None,
        samples: int = 0,
        *,
        apply: Callable[[], object] | None = None,
    ) -> None:
        """Replaces the parameters by the mean of this worker's and its neighbours', and applies the gradient:
        once for each batch, after backward(). Waits for the neighbours' updates, as the policy has it.

        loss     of this batch, a number or a tensor of one; the daemon records it (under hop with the next
                 push)
        samples  of this batch
        apply    is called in place of optimizer.step(), for instance lambda: scaler.step(optimizer)

        Raises Error (SYNCD_E_INVALID) if a parameter is infinite or not a number, which is never sent;
        SYNCD_E_STATE outside of the loop's body, and twice in it.
        """
        step = self._step
        if step is None or self._batches >= self._rules.batches:
            raise error_of(
                Status.E_STATE, f"{self._who()}: mix() is called once for each batch of job.steps()"
            )
        assert self.optimizer is not None
        apply = apply or self.optimizer.step
        self._batches += 1
        self._done = True
        self._loss = (loss, samples)
        if self._rules.acknowledges:
            apply()
        if not self._dropped and self._batches == self._rules.batches:
            with self._unless_given_up():
                if self._rules.acknowledges:
                    self.worker.mark()
                    self._send(step)
                self._mix_in(self._collect(step))
                self.worker.consumed(step.iteration, timeout=0)
        if not self._rules.acknowledges:
            apply()

    @contextlib.contextmanager
    def _unless_given_up(self) -> Iterator[None]:
        """If the daemon has given this worker up meanwhile, or the job was stopped, the next begin() says so."""
        try:
            yield
        except (WrongIteration, Stopped) as error:
            _log.warning(
                "%s: iteration %d is dropped: %s", self._who(), self.iteration, error.message
            )
            self._dropped = True

    def _send(self, step: Step) -> None:
        targets = self.worker.targets(step.iteration)
        with torch.no_grad():
            self._flat.pack(self._own)
        wrong = self._flat.spoilt(self._own)
        if wrong is not None:
            raise error_of(
                Status.E_INVALID,
                f"{self._who()}: {wrong} is infinite or not a number in iteration {step.iteration}; it is not "
                "sent to other workers. Lower the learning rate, or clip the gradients",
            )
        self._exchange.send(step.iteration, targets, self._own)
        loss, samples = self._loss
        self._push(loss, samples, self._flat.bytes)

    def _collect(self, step: Step) -> list[Update]:
        started = time.monotonic()
        updates = self.worker.collect(step.iteration)
        if self._progress is not None:
            self._progress.waited(time.monotonic() - started)
        return updates

    def _mix_in(self, updates: Sequence[Update]) -> None:
        """parameters = the weighted mean of these updates, less those that were lost with their senders."""
        with torch.no_grad():
            self._reduce(updates)

    def _reduce(self, updates: Sequence[Update]) -> None:
        peers = self._exchange.peers()
        weights = sum(one.weight for one in updates if one.rank == self.worker.rank)
        self._flat.scale_into(self._sums, weights)
        received = self._flat.runs(self._received)
        others = 0
        for one in updates:
            if one.rank == self.worker.rank:
                continue
            if not self._exchange.read(one.rank, one.iteration, self._received, peers):
                self.missing += 1
                _log.info(
                    "%s: iteration %d of worker %d was lost with it",
                    self._who(),
                    one.iteration,
                    one.rank,
                )
                continue
            others += 1
            weights += one.weight
            for total, run in zip(self._sums, received):
                total.add_(run, alpha=one.weight)
        self.mixed += others
        if others and weights > 0:
            self._flat.take_divided(self._sums, weights)

    # ---- Where the first parameters come from

    def _take_parameters(self, step: Step) -> None:
        """In this order: of a checkpoint from which the whole group continues, this worker's part; what another
        worker sent last, or has taken over; if nobody has any, the checkpoint or the parameters as they
        are of the worker with the lowest rank."""
        is_ours = step.resumed and self.resumed and step.iteration == self._continue_at
        say_at = time.monotonic() + _SAY_S
        while not is_ours:
            cards = self._exchange.cards()
            lowest = min([self.worker.rank, *cards])
            if lowest in cards and cards[lowest][1].schema != self._flat.schema:
                host, about = cards[lowest][0].host, cards[lowest][1].about
                raise error_of(
                    Status.E_INVALID,
                    f"{self._who()}: the model has {self._flat.about}, that of worker {lowest} ({host}) {about}, or "
                    "names, shapes or dtypes differ; allowed: the same model on every worker",
                )
            # At the start the lowest rank's are wanted; later, the freshest.
            others = [rank for rank in sorted(cards) if rank != self.worker.rank]
            if step.iteration > 0:
                others.sort(key=lambda rank: -cards[rank][0].clock)
            for rank in others:
                memory = _memory(self._received)
                found = self._exchange.ask(rank, cards[rank][1], memory, step.iteration == 0)
                if found is not None:
                    return self._adopt(rank, found)
            is_ours = lowest == self.worker.rank
            if not is_ours:
                time.sleep(_ASK_AGAIN_S)
                if time.monotonic() >= say_at:
                    say_at = time.monotonic() + _SAY_S
                    _log.info("%s waits for the parameters of worker %d", self._who(), lowest)
        with torch.no_grad():
            self._flat.pack(self._own)
        self._exchange.adopt(_memory(self._own))
        self._has_parameters = True

    def _adopt(self, rank: int, iteration: int) -> None:
        with torch.no_grad():
            self._flat.unpack(self._flat.runs(self._received))
        self._exchange.adopt(_memory(self._received))
        self._has_parameters = True
        which = f"iteration {iteration}" if iteration >= 0 else "as it began"
        _log.info("%s takes the parameters of worker %d, %s", self._who(), rank, which)
