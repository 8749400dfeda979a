"""What all forms of a job have in common: joining, the loop, checkpoints, the end."""

from __future__ import annotations

import itertools
import logging
import os
import pathlib
import threading
import time
from types import TracebackType
from typing import Any, Iterable, Iterator, Mapping, NamedTuple, Sequence

import torch

from .._address import own_address
from .._auto import place_of
from .._values import Pushed, Step
from ..checkpoint import Saver, ask_latest, on_sigterm
from ..client import Client, Worker, connect
from ..errors import Closed, Error, Status, Stopped, error_of, first_line, is_failure
from ._batches import Batches, split
from ._progress import Progress, progress_of

_log = logging.getLogger("syncd")

# How long the daemon keeps the place of a worker whose connection has closed.
_EXIT_GRACE_S = 1.0
_HEARTBEAT_TIMEOUT_S = 1.0  # how long a silence takes it for cut
_RANK_TIMEOUT_S = 15.0
IF_FINISHED = (
    ". If the others have finished, their job is over, and this process has begun another of its name, which waits "
    "for all workers: end it, or start them, too"
)


class Options(NamedTuple):
    """What run() was given that concerns every form."""

    policy: str
    job: str | None
    rank: int | None
    world_size: int | None
    name: str | None
    address: str | Sequence[str] | None
    checkpoint: str | os.PathLike[str] | None
    progress: bool | None
    hang_after: float | None
    state: Mapping[str, Any]


class Iteration(int):
    """One iteration of this worker, as steps() yields it: a number from 0, as the daemon counts it. It
    continues after a restart from a checkpoint.

    step    the grant itself, a syncd.Step: staleness, view, and the rest
    """

    step: Step
    _job: Job
    _batch: Any

    def __new__(cls, job: Job, step: Step, batch: Any) -> Iteration:
        made = super().__new__(cls, step.iteration)
        made.step = step
        made._job = job
        made._batch = batch
        return made

    def micro_batches(self, parts: int) -> Iterator[Any]:
        """The batch in `parts`, for gradients that add up:

            for step, (inputs, labels) in job.steps(loader):
                for x, y in step.micro_batches(4):
                    (criterion(model(x), y) * len(x) / len(inputs)).backward()

        Not `/ 4`, where the loss is a mean: parts differ by one sample, and a batch with fewer samples than
        `parts`, as the last of a pass may be, comes in one part for each.

        Under specsync, if the daemon advises between two parts to begin again on fresher parameters, then
        gradients are dropped, buffers and the state of the random generators are set back, parameters are
        pulled, and all parts come once more.
        """
        if parts < 1:
            raise error_of(Status.E_INVALID, f"micro_batches({parts}); allowed: 1 or more")
        pieces = split(self._batch, parts)
        before = self._job._before_iteration()
        at = 0
        while at < len(pieces):
            if at > 0 and self._job._restarts(before):
                at = 0
            yield pieces[at]
            at += 1


class Job:
    """A worker's part in a job of syncd.torch, made by run(); use it in a `with` statement.

    worker     the syncd.Worker, once the `with` block is entered; on a replica's further ranks it has no calls
    model      the module that was given to run()
    iteration  of the latest step; -1 before the first
    resumed    whether the training continues from a checkpoint

    The end of the `with` block leaves the job: as finished if steps() has come to its end, as failed, with
    the exception's type and first line, if one ends the block.
    """

    form = ""
    _done_by = "push()"  # what the loop's body calls
    _sharded = False  # whether each worker saves a part of the checkpoint of its own

    def __init__(
        self, options: Options, model: torch.nn.Module, optimizer: torch.optim.Optimizer | None
    ) -> None:
        if not isinstance(model, torch.nn.Module):
            kind = type(model).__name__
            raise error_of(Status.E_INVALID, f"model is of type {kind}; allowed: a torch.nn.Module")
        if not any(True for _ in model.parameters()):
            raise error_of(Status.E_INVALID, "model has no parameters; allowed: a module with some")
        self.model = model
        self.optimizer = optimizer
        self.iteration = -1
        self.resumed = False
        self.worker: Worker
        self._options = options
        self._client: Client
        self._saver: Saver | None = None
        self._saves_at_end = True
        self._finished = False
        self._grant: Step | None = None  # the latest
        self._used = False  # the loop's body has had a batch for it
        self._done = False  # and has said so: with _done_by
        self._skips = False  # some were skipped
        self._passes = itertools.count()  # of loaders, over all calls of steps()
        self._pass_batches: Batches | None = None  # of a call that ended within a pass
        self._counting: Batches | None = None  # of a call with epochs that is under way
        self._passed = 0  # passes of such calls that are over, those before the checkpoint included
        self._to_pass_over = 0  # of those before the checkpoint, what calls are still to come for
        self._has_hinted = False  # that the others may have finished
        self._progress: Progress | None = None

    # ---- What a form adds

    def _join_options(self) -> dict[str, Any]:
        """Arguments of join()."""
        return {}

    def _opened(self) -> None:
        """The worker has joined, and its checkpoint is loaded if there is one; before the first begin()."""

    def _begin_data(self) -> bytes | None:
        """What begin() shows to the others of the view."""
        return None

    def _begin(self) -> Step:
        return self.worker.begin(data=self._begin_data())

    def _granted(self, step: Step) -> None:
        """Before the iteration's batch: what the grant asks for."""

    def _continues(self) -> bool:
        """Whether the next batch belongs to the iteration that was granted last."""
        return False

    def _starts(self, step: Step) -> None:
        """Before the loop's body: the iteration has a batch."""

    def _is_dropped(self) -> str:
        """What of a skipped batch is dropped, for its warning."""
        return ""

    def _pass_over(self) -> None:
        """Ends what the loop's body has skipped, without an update."""
        self._push(None, 0, 0)

    def _may_save(self) -> bool:
        """Whether a checkpoint that is asked for now may be saved."""
        return True

    def _state(self) -> dict[str, Any]:
        """Of a checkpoint, beside model and optimizer."""
        return {}

    def _load_state(self, state: dict[str, Any]) -> None: ...

    def _before_iteration(self) -> Any:
        """What _restarts() sets back; None: this job never begins an iteration again."""
        return None

    def _restarts(self, before: Any) -> bool:
        """Whether the iteration begins again, with all set back."""
        return False

    def _closing(self, error: BaseException | None) -> None:
        """Before the worker leaves."""

    def _closed(self) -> None:
        """When the worker has left."""

    # ---- The loop

    def steps(
        self,
        loader: Iterable[Any] | None = None,
        *,
        iterations: int | None = None,
        epochs: int | None = None,
    ) -> Iterator[tuple[Iteration, Any]]:
        """Begins iterations, and yields each with a batch of the loader, until the job ends.

            for step, (inputs, labels) in job.steps(loader, iterations=1000): ...

        loader      begins again when it has ended, with its sampler's set_epoch() called; None: no batches
        iterations  ends before iteration `iterations` of this worker
        epochs      ends after so many passes of the loader. With neither: after one. Those that were over when the
                    checkpoint was saved count, in the order of the calls; one within which it was begins anew

        A script may do something else between two calls; iterations count on. A call with `iterations` alone
        takes the batches that an earlier one has left of the same loader's pass. Any other begins a pass:

            for epoch in range(3):
                for step, (inputs, labels) in job.steps(loader): ...
                validate(model)

        set_epoch() gets the number of the pass over all calls. What is granted at the end of a call is the
        next one's first iteration: meanwhile this worker counts as computing.

        A body that goes on without push() or mix(), as by `continue`, skips its batch: the iteration counts,
        and nothing of it is sent or weighed.

        begin() waits in between, as the policy has it. If the job is stopped, the loop ends early, with a
        line in the log, and the job does not count as finished by this worker.
        Raises Error (SYNCD_E_INVALID) for a loader without batches, or one that cannot begin again.
        """
        check_counts(iterations=iterations, epochs=epochs)
        if loader is None and iterations is None:
            raise error_of(Status.E_INVALID, "steps() without a loader; allowed with iterations=N")
        if iterations is None and epochs is None:
            epochs = 1
        return self._steps(loader, epochs, lambda: iterations is not None and self.iteration >= iterations)

    def _steps(
        self, loader: Iterable[Any] | None, epochs: int | None, ended: Any
    ) -> Iterator[tuple[Iteration, Any]]:
        if epochs is not None and self._to_pass_over > 0:
            over = min(epochs, self._to_pass_over)
            self._to_pass_over -= over
            epochs -= over
            if epochs == 0:
                self._finished = True
                return
        batches = self._pass_batches
        if batches is None or batches.loader is not loader or epochs is not None:
            batches = Batches(loader, epochs, self._who(), self._passes)
        self._pass_batches = batches if epochs is None else None
        self._count_passes(batches if epochs is not None else None)
        try:
            yield from self._loop(batches, ended)
        finally:
            if self._counting is batches:
                self._count_passes(None)

    def _count_passes(self, of: Batches | None) -> None:
        """From now on those of this call, if any. Nothing holds an earlier call's loader any more."""
        if self._counting is not None:
            self._passed += self._counting.passed()
        self._counting = of

    def _loop(self, batches: Batches, ended: Any) -> Iterator[tuple[Iteration, Any]]:
        self._finished = False
        with progress_of(self._options.progress, self.worker) as progress:
            self._progress = progress
            while True:
                started = time.monotonic()
                step = self._grant
                if self._used and not self._done:
                    self._skip_batch()
                if step is None or (self._used and not self._continues()):
                    self._grant = None  # if what follows fails
                    step = self._begin()
                    self._used = False
                    if step.stop:
                        self._grant = step
                        if not _is_finished(step):
                            _log.warning("%s: the job was stopped: %s", self._who(), step.reason)
                        continue
                    self.iteration = step.iteration
                    self._granted(step)
                    if self._saver is not None:
                        if step.checkpoint == 0 or self._may_save():
                            self._saver.save(step)
                        else:
                            self._saver.decline(step.checkpoint)
                    self._grant = step
                    progress.waited(time.monotonic() - started)
                if step.stop:
                    self._finished = _is_finished(step)
                    return
                if not self._used and ended():
                    self._finished = True
                    return
                try:
                    batch = next(batches)
                except StopIteration:
                    self._finished = True
                    return
                self._starts(step)
                self._used, self._done = True, False
                yield Iteration(self, step, batch), batch
                progress.stepped()

    def _skip_batch(self) -> None:
        if not self._skips:
            _log.warning(
                "%s: iteration %d has ended without %s, as one whose batch is skipped%s; "
                "later ones are not named",
                self._who(), self.iteration, self._done_by, self._is_dropped(),
            )  # fmt: skip
            self._skips = True
        self._pass_over()
        self._done = True

    def _check_not_done(self) -> None:
        if self.iteration < 0:
            raise error_of(
                Status.E_STATE,
                f"{self._who()}: job.{self._done_by} outside of `for step, batch in job.steps(loader)`",
            )
        if self._done:
            raise error_of(
                Status.E_STATE,
                f"{self._who()}: {self._done_by} is called once for each batch of job.steps()",
            )

    def _push(self, loss: Any, samples: int, size: int) -> Pushed:
        """worker.push(); the loss may be a tensor of one element. If the job has been stopped, steps() ends
        next."""
        try:
            pushed = self.worker.push(number_of(loss), samples, size)
        except Stopped:
            pushed = Pushed(self.iteration, True)
        self._done = True
        return pushed

    def push(self, *_: Any, **__: Any) -> Any:
        """Of the forms averaging and server."""
        raise self._not_of_form("push()")

    def mix(self, *_: Any, **__: Any) -> Any:
        """Of the form neighbours."""
        raise self._not_of_form("mix()")

    def _not_of_form(self, call: str) -> Error:
        return error_of(
            Status.E_UNSUPPORTED,
            f"{self._who()}: job.{call} under {self._options.policy}; the loop's body calls "
            f"job.{self._done_by} there",
        )

    # ---- Beginning and end

    def __enter__(self) -> Job:
        self._client = self._open_client()
        try:
            found = self._checkpoint_iteration()
            self.worker = self._join(found)
            try:
                self._prepare(found)
                self._opened()
            except BaseException as error:
                self._leave(error)
                raise
        except BaseException:
            self._client.close()
            raise
        return self

    def _open_client(self) -> Client:
        return connect(self._options.address)

    def _join(self, resume_at: int | None) -> Worker:
        options = self._options
        until = time.monotonic() + _RANK_TIMEOUT_S
        while True:
            try:
                return self._client.join(
                    options.job,
                    options.policy,
                    rank=options.rank,
                    world_size=options.world_size,
                    name=options.name,
                    checkpoints=options.checkpoint is not None,
                    exit_grace=_EXIT_GRACE_S,
                    heartbeat_timeout=_HEARTBEAT_TIMEOUT_S,
                    hang_after=options.hang_after,
                    resume_at=resume_at,
                    on_wait=self._waits,
                    **self._join_options(),
                )
            except Error as error:
                # Of a process that has died just now, whose place is kept for a moment.
                if error.code != Status.E_RANK_TAKEN or time.monotonic() > until:
                    raise
                time.sleep(0.25)

    def _waits(self, text: str) -> None:
        # The daemon's rule for a job that has not begun.
        if "(start: " in text and not self._has_hinted:
            self._has_hinted = True
            text += IF_FINISHED
        _log.warning("%s", text)

    def _checkpoint_iteration(self) -> int | None:
        """Where the latest complete checkpoint in `checkpoint` continues; None: there is none."""
        directory = self._options.checkpoint
        if directory is None:
            return None
        try:
            found = ask_latest(self._client, self._options.job, count=1)
        except Error as error:
            if error.code != Status.E_UNKNOWN_JOB:
                raise
            return None
        if found.number == 0:
            return None
        wanted = pathlib.Path(directory).absolute()
        lies = pathlib.Path(found.shards[0].location).parent
        if lies != wanted:
            _log.warning("the latest checkpoint lies in %s, not in checkpoint=%s: beginning anew", lies, wanted)
            return None
        return found.iteration

    def _prepare(self, found: int | None) -> None:
        """Saving, and the model of the checkpoint."""
        directory = self._options.checkpoint
        if directory is None:
            return
        self._saver = self._make_saver(directory)
        if threading.current_thread() is threading.main_thread():
            self._mind_sigterm()
        if found is None:
            return
        loaded = self._saver.load()
        if loaded is None:
            return
        try:
            self.model.load_state_dict(loaded.state["model"])
            if self.optimizer is not None and loaded.state["optimizer"] is not None:
                self.optimizer.load_state_dict(loaded.state["optimizer"])
            saved = loaded.state.get("state", {})
            if saved.keys() != self._options.state.keys():
                raise ValueError(f"state= of {sorted(saved)}; here: {sorted(self._options.state)}")
            for name, one in self._options.state.items():
                one.load_state_dict(saved[name])
            self._load_state(loaded.state["form"])
            self._passed = self._to_pass_over = loaded.state.get("passes", 0)
            self._passes = itertools.count(self._passed)
        except (KeyError, RuntimeError, ValueError, TypeError) as error:
            raise error_of(
                Status.E_INVALID,
                f"{self._who()}: the checkpoint {loaded.location} does not fit this model and optimizer "
                f"({error}); allowed: another directory as checkpoint=, or a job of another name",
            ) from error
        self.resumed = True
        _log.info("%s continues at iteration %d, from %s", self._who(), loaded.iteration, loaded.location)

    def _make_saver(self, directory: str | os.PathLike[str]) -> Saver:
        return Saver(self.worker, directory, self._saved, sharded=self._sharded)

    def _mind_sigterm(self) -> None:
        on_sigterm(self.worker)

    def _saved(self) -> dict[str, Any]:
        return {
            "model": self.model.state_dict(),
            "optimizer": None if self.optimizer is None else self.optimizer.state_dict(),
            "form": self._state(),
            "passes": self._passed + (0 if self._counting is None else self._counting.passed()),
            "state": {name: one.state_dict() for name, one in self._options.state.items()},
        }

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        try:
            self._leave(error)
        finally:
            self._client.close()

    def _leave(self, error: BaseException | None) -> None:
        try:
            self._closing(error)
            if is_failure(error):
                self.worker.leave(kind="failed", reason=first_line(error))
            else:
                self._leave_in_order()
        except Closed:
            pass  # it has left already, or the client was closed meanwhile
        except Error:
            if error is None:
                raise  # else the exception on its way says more
        finally:
            self._closed()

    def _leave_in_order(self) -> None:
        """With a checkpoint where one is wanted before."""
        worker = self.worker
        how = "finished" if self._finished else "left"
        try:
            worker.leave(kind=how)
        except Error as wanted:
            if wanted.code != Status.E_CHECKPOINT:
                raise
            if self._saver is not None and self._saves_at_end and self._may_save():
                self._saver.save_as(worker.checkpoint, self.iteration + 1)
            worker.leave(kind=how)

    def _own_host(self) -> str:
        """At which address the other workers reach this process: on one machine 127.0.0.1."""
        options = self._options
        daemon = self._client.address or ""
        # The environment says whether all are on one machine: connect("auto") and torchrun rely on it.
        is_auto = options.address == "auto" and not os.environ.get("SYNCD_ADDR")
        is_known = not daemon or "LOCAL_WORLD_SIZE" in os.environ or is_auto
        is_on_one = is_known and not place_of(os.environ).several_machines
        if is_on_one or daemon.startswith("unix:") and "," not in daemon:
            return "127.0.0.1"
        return own_address(daemon)

    def _who(self) -> str:
        worker = self.worker
        return f"job {worker.job}, worker {worker.rank}"


def number_of(loss: Any) -> Any:
    """Of a tensor its one number. Raises Invalid for one of several."""
    if not isinstance(loss, torch.Tensor):
        return loss
    if loss.numel() != 1:
        raise error_of(
            Status.E_INVALID,
            f"loss of shape {tuple(loss.shape)}; allowed: a number, or a tensor of one element",
        )
    return loss.item()


def check_counts(**counts: int | None) -> None:
    """Raises Invalid for one below 1."""
    for what, value in counts.items():
        if value is not None and value < 1:
            raise error_of(Status.E_INVALID, f"{what}={value}; allowed: 1 or more, or None")


def _is_finished(step: Step) -> bool:
    """Of a step that ends the loop: whether the job has come to its end."""
    return not step.reason or step.reason.startswith("finished")
