"""Agreed checkpoints: all workers of a job save at iterations that fit together.

    with syncd.connect() as client, client.join("job", "bsp", checkpoints=True) as worker:
        saver = syncd.checkpoint.Saver(
            worker, "/scratch/job", lambda: {"model": model.state_dict(), "sgd": sgd.state_dict()}
        )
        found = saver.load()  # of the latest complete checkpoint; None: there is none
        for step in worker:
            saver.save(step)  # where the step says so
            ...

A checkpoint is asked for by `syncctl checkpoint JOB`, by `checkpoint_every` of the job, by
worker.request_checkpoint(), or by a SIGTERM (on_sigterm()). Importing this needs no PyTorch; saving by
the default does.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pathlib
import signal
import socket
import sys
import threading
import time
from typing import Any, Callable, Iterator, NamedTuple

from .client import Checkpoint, Step, Worker
from .errors import Error, Status, error_of

# Who waits until a checkpoint is closed asks after pauses that double, up to the longest.
_PAUSE_FIRST_S = 0.1
_PAUSE_MAX_S = 2.0

_log = logging.getLogger("syncd")

# What the daemon answers about a checkpoint that others have ended meanwhile, or no daemon does.
_NOT_FATAL = (Status.E_STATE, Status.E_INVALID, Status.E_TIMEOUT, Status.E_UNREACHABLE)


class Found(NamedTuple):
    """What load() has read."""

    state: Any
    iteration: int
    """Where to continue, as the job that saved it counted: from 0 at each of its starts, unless join()
    was given resume_at. A script that does not give it keeps its own count in the state."""
    number: int
    location: str


def _torch_save(state: Any, path: str) -> None:
    import torch

    torch.save(state, path)


def _torch_load(path: str) -> Any:
    import torch

    return torch.load(path, map_location="cpu")


class Saver:
    """Saves a worker's state where a step says so, and says where.

    worker     of a join with checkpoints=True
    directory  made if it is not there; all workers see it, or each has its own and `sharded` is True
    state      called without arguments when a checkpoint is due: what to save
    sharded    False: all workers have the same state, and the first of them saves it. True: each
               saves its own, and the checkpoint needs all of them
    lease      seconds in which a save does not make the worker late
    save_to    called with the state and a path; default: torch.save
    load_from  called with a path; default: torch.load, to the CPU

    The daemon says with the step which shard is whose, so all agree also if workers join or go meanwhile.
    With `sharded` all workers of the job must take part. A file is complete when it has its name; of
    older checkpoints than the latest complete one save() removes this worker's files.
    """

    def __init__(
        self,
        worker: Worker,
        directory: str | os.PathLike[str],
        state: Callable[[], Any],
        *,
        sharded: bool = False,
        lease: float = 600.0,
        save_to: Callable[[Any, str], object] = _torch_save,
        load_from: Callable[[str], Any] = _torch_load,
    ) -> None:
        self.worker = worker
        self.directory = pathlib.Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        self._state = state
        self._sharded = sharded
        self._lease = lease
        self._save_to = save_to
        self._load_from = load_from
        self._files: list[tuple[int, pathlib.Path]] = []

    def save(self, step: Step) -> str | None:
        """Saves if the step asks for it. Where it was saved; None: nothing was to be saved here.

        If other workers have ended this checkpoint, or the daemon does not answer, that is logged and
        no error is raised. Errors of save_to are raised.
        """
        return self.save_as(step.checkpoint, step.iteration) if step.checkpoint else None

    def save_as(self, number: int, iteration: int) -> str | None:
        """The same of checkpoint `number`, with `iteration` as the next one: for a leave that was
        answered SYNCD_E_CHECKPOINT."""
        worker = self.worker
        shard, shards = worker.checkpoint_shard(number)
        if not self._sharded:
            shard, shards = (0, 1) if shard == 0 else (0, 0)
        if shards == 0:
            worker.checkpointed(number, "", 0, 0)
            return None
        name = f"{worker.job}-{number}-{iteration}-{shard}of{shards}.ckpt"
        path = self.directory / name
        with worker.phase("checkpoint", lease=self._lease):
            part = path.with_name(f".{name}.{os.getpid()}")
            try:
                self._save_to(self._state(), str(part))
                with open(part, "rb") as saved:
                    os.fsync(saved.fileno())
                os.replace(part, path)
            finally:
                with contextlib.suppress(FileNotFoundError):
                    part.unlink()
            self._files.append((number, path))
            try:
                worker.checkpointed(number, str(path), shard, shards)
                self._remove_older()
            except Error as error:
                if error.code not in _NOT_FATAL:
                    raise
                _log.warning("checkpoint %d: %s", number, error)
        return str(path)

    def load(self) -> Found | None:
        """The state of the latest complete checkpoint, of this worker's shard; None: there is none."""
        found = self._find()
        if found is None:
            return None
        shard = found.shards[0]
        state = self._load_from(shard.location)
        return Found(state, found.iteration, found.number, shard.location)

    def _find(self) -> Checkpoint | None:
        """With this worker's shard alone: where the others lie does not concern it."""
        client, job = self.worker.client, self.worker.job
        while True:
            try:
                latest = client.latest_checkpoint(job, count=0)
            except Error as error:
                if error.code != Status.E_UNKNOWN_JOB:
                    raise
                return None
            if latest.number == 0:
                return None
            if self._sharded and latest.shard_count != self.worker.world_size:
                raise error_of(
                    Status.E_STATE,
                    f"checkpoint {latest.number} has {latest.shard_count} shards, and the job "
                    f"{self.worker.world_size} workers; they must be as many",
                )
            first = self.worker.rank % latest.shard_count
            found = client.latest_checkpoint(job, first=first, count=1)
            # Else a later one was complete meanwhile.
            if (found.epoch, found.number) == (latest.epoch, latest.number):
                return found

    def _remove_older(self) -> None:
        complete = self.worker.client.latest_checkpoint(self.worker.job, count=0).number
        for number, path in [one for one in self._files if one[0] < complete]:
            with contextlib.suppress(OSError):
                path.unlink()
            self._files.remove((number, path))


def _pauses(rank: int) -> Iterator[float]:
    """Up to a quarter shorter or longer, each worker by another share: they do not ask all at once."""
    share = 0.75 + rank * 0.6180339887 % 1 / 2
    pause = _PAUSE_FIRST_S
    while True:
        yield pause * share
        pause = min(2 * pause, _PAUSE_MAX_S)


def on_sigterm(worker: Worker, wait: float = 20.0) -> None:
    """From now on a SIGTERM asks for a checkpoint, waits `wait` seconds at most until it is complete,
    leaves as preempted and ends the process with 143. While the job has lost a worker, it ends at once;
    likewise under torchrun once the round that started this process is broken or over: torchrun itself
    sends SIGTERM to all workers then.

    A thread of its own takes the signal, because a handler of Python's never runs while the main
    thread is in a collective that hangs. Meanwhile the main thread must go on with its loop: it is
    there that the state is saved. To be called in the main thread, once.
    """
    told, tell = socket.socketpair()
    for end in (told, tell):
        end.setblocking(False)
    before = signal.set_wakeup_fd(tell.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGTERM, lambda *_: None)  # so that the number is written
    told.setblocking(True)

    def take() -> None:
        while True:
            numbers = told.recv(64)
            if before != -1:
                with contextlib.suppress(OSError):
                    os.write(before, numbers)
            if signal.SIGTERM in numbers:
                _preempted(worker, wait)

    threading.Thread(target=take, name="syncd-sigterm", daemon=True).start()
    worker._taken_by = (told, tell)  # they live as long


def _preempted(worker: Worker, wait: float) -> None:
    end = time.monotonic() + wait
    what = "no checkpoint"
    try:
        number = worker.request_checkpoint("SIGTERM", leaving=True, timeout=wait)
        for pause in _pauses(worker.rank):
            latest = worker.client.latest_checkpoint(worker.job, count=0)
            left = end - time.monotonic()
            if latest.closed >= number or left <= 0:
                break
            time.sleep(min(pause, left))
        what = f"checkpoint {number}"
    except Error as error:
        what = error.message
    worker._going = threading.get_ident()
    try:
        worker._leave_preempted("SIGTERM")
    except Error:
        pass  # it is gone all the same
    try:
        print(f"syncd: preempted by SIGTERM; {what}", file=sys.stderr, flush=True)
    finally:  # the pipe of stderr may be closed
        os._exit(128 + signal.SIGTERM)
