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
import re
import shutil
import signal
import socket
import sys
import threading
import time
from typing import Any, Callable, Iterator, NamedTuple

from ._values import Checkpoint, Step
from .client import Client, Worker
from .errors import Error, Status, Unreachable, error_of

# Who waits until a checkpoint is closed asks after pauses that double, up to the longest.
_PAUSE_FIRST_S = 0.1
_PAUSE_MAX_S = 2.0
# How long a start waits for a daemon that it has lost, where the client does not say.
_PATIENCE_S = 60.0

_log = logging.getLogger("syncd")

# No daemon has answered: the answer is given again later.
_UNANSWERED = (Status.E_TIMEOUT, Status.E_UNREACHABLE)
# Likewise what the daemon answers about a checkpoint that others have ended meanwhile.
_NOT_FATAL = (Status.E_STATE, Status.E_INVALID, *_UNANSWERED)


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

    # From torch 2.6 on its default refuses what torch.save() takes, as an object of numpy's.
    return torch.load(path, map_location="cpu", weights_only=False)


class Saver:
    """Saves a worker's state where a step says so, and says where.

    worker     of a join with checkpoints=True
    directory  made if it is not there; all workers see it, or each has its own and `sharded` is True
    state      called without arguments when a checkpoint is due: what to save
    sharded    False: all workers have the same state, and the first of them saves it. True: each
               saves its own, and the checkpoint needs all of them
    lease      seconds in which a save does not make the worker late
    save_to    called with the state and a path, where it makes a file or a folder; default: torch.save
    load_from  called with a path; default: torch.load, to the CPU, of any object: who may write into the
               directory can have code run here

    The daemon says with the step which shard is whose, so all agree also if workers join or go meanwhile.
    With `sharded` all workers of the job must take part; while one is missing nothing is saved, because
    its part would be. A file is complete when it has its name. save() removes what the directory has of
    older checkpoints of this job than the latest complete one.
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
        self.directory = pathlib.Path(directory).absolute()  # a later launch may begin elsewhere
        self.directory.mkdir(parents=True, exist_ok=True)
        self._state = state
        self._sharded = sharded
        self._lease = lease
        self._save_to = save_to
        self._load_from = load_from
        self._unsaid: tuple[int, str, int, int] | None = None  # an answer that no daemon has taken yet

    def save(self, step: Step) -> str | None:
        """Saves if the step asks for it. Where it was saved; None: nothing was to be saved here.

        If other workers have ended this checkpoint, or the daemon does not answer, that is logged and
        no error is raised; the next call says again what no daemon has taken. Errors of save_to are
        raised.
        """
        unsaid = self._unsaid
        if unsaid is not None:
            self._say(*unsaid)
        return self.save_as(step.checkpoint, step.iteration) if step.checkpoint else None

    def save_as(self, number: int, iteration: int) -> str | None:
        """The same of checkpoint `number`, with `iteration` as the next one: for a leave that was
        answered SYNCD_E_CHECKPOINT."""
        worker = self.worker
        shard, shards = worker.checkpoint_shard(number)
        if self._sharded and shards < worker.world_size:
            _log.warning(
                "checkpoint %d is not saved: %d of %d workers are there, and each has a part of the state",
                number,
                shards,
                worker.world_size,
            )
            shards = 0
        elif not self._sharded:
            shard, shards = (0, 1) if shard == 0 else (0, 0)
        if shards == 0:
            self._say(number, "", 0, 0)
            return None
        name = f"{worker.job}-{number}-{iteration}-{shard}of{shards}.ckpt"
        path = self.directory / name
        with worker.phase("checkpoint", lease=self._lease, timeout=0):
            part = path.with_name(f".{name}.{os.getpid()}")
            try:
                self._save_to(self._state(), str(part))
                _sync(part)
                if path.is_dir():
                    _remove(path)  # of a try at the same checkpoint that others did not complete
                os.replace(part, path)
            finally:
                _remove(part)
            self._say(number, str(path), shard, shards)
        return str(path)

    def decline(self, number: int) -> None:
        """Says that this worker has nothing to save of checkpoint `number`, so that nobody waits for it."""
        self._say(number, "", 0, 0)

    def load(self) -> Found | None:
        """The state of the latest complete checkpoint, of this worker's shard; None: there is none."""
        return self._read(self._find, self._load_from)

    @staticmethod
    def _read(find: Callable[[], Checkpoint | None], read: Callable[[str], Any]) -> Found | None:
        found = find()
        while found is not None:
            location = found.shards[0].location
            try:
                state = read(location)
            except Exception:
                # Other workers may have completed the next one meanwhile, and removed this one.
                latest = find()
                if latest is None or latest.number == found.number:
                    raise
                found = latest
            else:
                return Found(state, found.iteration, found.number, location)
        return None

    def _find(self) -> Checkpoint | None:
        """With this worker's shard alone: where the others lie does not concern it."""
        client, job = self.worker.client, self.worker.job
        while True:
            try:
                latest = ask_latest(client, job, count=0)
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
            found = ask_latest(client, job, first=first, count=1)
            # Else a later one was complete meanwhile.
            if (found.epoch, found.number) == (latest.epoch, latest.number):
                return found

    def _say(self, number: int, location: str, shard: int, shards: int) -> None:
        """Where this worker's shard lies; shards 0: it saves nothing."""
        given = (number, location, shard, shards)
        try:
            self.worker.checkpointed(*given)
            self._unsaid = None
            if location:
                self._remove_older()
        except Error as error:
            self._unsaid = given if error.code in _UNANSWERED else None
            if error.code not in _NOT_FATAL:
                raise
            _log.warning("checkpoint %d: %s", number, error)

    def _remove_older(self) -> None:
        """Those of all workers, and unfinished files of workers that were killed. Others may remove the same."""
        complete = self.worker.client.latest_checkpoint(self.worker.job, count=0).number
        job = re.escape(self.worker.job)
        names = re.compile(rf"\.?{job}-(\d+)(-\d+-(\d+of\d+|\d+ranks)\.ckpt(\.\d+)?|\.dcp)")
        for path in list(self.directory.iterdir()):
            found = names.fullmatch(path.name)
            if found is None or int(found[1]) >= complete:
                continue
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                with contextlib.suppress(OSError):
                    path.unlink()


class DcpSaver(Saver):
    """Saves by torch.distributed.checkpoint (DCP): every rank writes its parts of sharded tensors, and one
    of them what all have, into one folder. As many ranks as one likes may load it.

    worker, directory, state, lease: as Saver has them. All ranks see the directory, and all are to save
               at the same step: under bsp, or where all meet in each iteration anyway, as in DDP
    process_group  of torch.distributed, with all workers of the job; None: its default group. With
               `background` it must be one that nothing else uses meanwhile, over gloo
    background  True: a step copies the state, and a thread writes it (DCP's async_save). The next save
               waits for the one before

    load() fills the tensors of state() in place, as DCP does, and returns that state.

    Needs torch 2.3 or later: Error (SYNCD_E_UNSUPPORTED) otherwise.
    """

    def __init__(
        self,
        worker: Worker,
        directory: str | os.PathLike[str],
        state: Callable[[], dict[str, Any]],
        *,
        lease: float = 600.0,
        process_group: Any = None,
        background: bool = False,
    ) -> None:
        super().__init__(worker, directory, state, lease=lease)
        try:
            from torch.distributed import checkpoint

            checkpoint.async_save  # noqa: B018
        except (ImportError, AttributeError) as error:
            raise error_of(
                Status.E_UNSUPPORTED, f"DcpSaver needs torch 2.3 or later, with its distributed package: {error}"
            ) from error
        self._dcp = checkpoint
        self._group = process_group
        self._background = background
        self._running: Any = None  # DCP's future, and what to say of it
        self._saying = threading.Lock()

    def save_as(self, number: int, iteration: int) -> str | None:
        """As Saver has it. With `background` it returns where the checkpoint will lie."""
        del iteration
        worker = self.worker
        shard, shards = worker.checkpoint_shard(number)
        path = self.directory / f"{worker.job}-{number}.dcp"
        with worker.phase("checkpoint", lease=self._lease, timeout=0):
            self.wait()
            if self._background:
                running = self._dcp.async_save(
                    self._state(), checkpoint_id=str(path), process_group=self._group
                )
                self._running = running
                running.add_done_callback(
                    lambda done: self._written(done.exception(), number, str(path), shard, shards)
                )
            else:
                self._dcp.save(self._state(), checkpoint_id=str(path), process_group=self._group)
                self._say(number, str(path), shard, shards)
        return str(path)

    def wait(self) -> None:
        """Until what is written in the background has been; to be called before the process ends. Errors
        of that are logged, not raised."""
        running, self._running = self._running, None
        if running is not None:
            with contextlib.suppress(Exception):
                running.result()

    def load(self) -> Found | None:
        found = self._find()
        if found is None:
            return None
        state = self._state()
        location = found.shards[0].location
        self._dcp.load(state, checkpoint_id=location, process_group=self._group)
        return Found(state, found.iteration, found.number, location)

    def _written(
        self, error: BaseException | None, number: int, location: str, shard: int, shards: int
    ) -> None:
        """In a thread of DCP's."""
        try:
            if error is None:
                self._say(number, location, shard, shards)
            else:
                _log.error("checkpoint %d is not saved: %s", number, error)
                self._say(number, "", 0, 0)  # or the others would wait for it
        except Error as refused:
            _log.error("checkpoint %d: %s", number, refused)

    def _say(self, number: int, location: str, shard: int, shards: int) -> None:
        with self._saying:
            super()._say(number, location, shard, shards)


def _sync(path: pathlib.Path) -> None:
    """Onto the disk, with all that is in a folder."""
    for one in [path, *(path.rglob("*") if path.is_dir() else ())]:
        handle = os.open(one, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _remove(path: pathlib.Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _pauses(rank: int) -> Iterator[float]:
    """Up to a quarter shorter or longer, each worker by another share: they do not ask all at once."""
    share = 0.75 + rank * 0.6180339887 % 1 / 2
    pause = _PAUSE_FIRST_S
    while True:
        yield pause * share
        pause = min(2 * pause, _PAUSE_MAX_S)


# Of on_sigterm(): what the signal does; the pair of sockets that its number comes through, which a forked
# process must not write to; and where else numbers go.
_target: Callable[[], object] | None = None
_pair: tuple[socket.socket, socket.socket] | None = None
_forward = -1
_held = threading.local()


def _note(*_: object) -> None:
    """Handles SIGTERM; what is to be done a thread does."""


def _before_fork() -> None:
    # Until the child has its own ways: a signal to it would be this process's.
    _held.mask = None
    if signal.getsignal(signal.SIGTERM) is _note:
        _held.mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])


def _after_fork() -> None:
    if _held.mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, _held.mask)


def _in_child() -> None:
    global _target, _pair, _forward
    if _pair is not None:
        wakes = signal.set_wakeup_fd(-1)
        if wakes not in [one.fileno() for one in _pair]:
            signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
        for one in _pair:
            one.close()
        _target, _pair, _forward = None, None, -1
    if signal.getsignal(signal.SIGTERM) is _note:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _after_fork()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_in_child)


def on_sigterm(worker: Worker, wait: float = 20.0) -> None:
    """From now on a SIGTERM asks for a checkpoint, waits `wait` seconds at most until it is complete,
    leaves as preempted and ends the process with 143. One that was complete in the last 20 s, since the
    job's latest start, serves too: all workers may get the signal, and need not save one each. While the job
    has lost a worker that has not saved its part, it ends at once; likewise under torchrun once the round
    that started this process is broken or over: torchrun itself sends SIGTERM to all workers then.

    A thread of its own takes the signal, because a handler of Python's never runs while the main
    thread is in a collective that hangs. Meanwhile the main thread must go on with its loop: it is
    there that the state is saved. To be called in the main thread; again for the worker of a later training,
    whose the signal is from then on. A process that is forked from this one ends by SIGTERM as by default.
    """
    _on_sigterm(lambda: _preempted(worker, wait))


def _on_sigterm(act: Callable[[], object]) -> None:
    """Calls act() at each SIGTERM in that thread. In the main thread."""
    global _target, _pair, _forward
    if _pair is None:
        _pair = socket.socketpair()
        _pair[1].setblocking(False)
        threading.Thread(target=_take, args=(_pair[0],), name="syncd-sigterm", daemon=True).start()
    before = signal.set_wakeup_fd(_pair[1].fileno(), warn_on_full_buffer=False)
    if before != _pair[1].fileno():
        _forward = before
    _target = act
    signal.signal(signal.SIGTERM, _note)  # so that the number is written


def ask_latest(client: Client, job: str | None, **options: Any) -> Checkpoint:
    """As client.latest_checkpoint(), also while its connection is lost: another daemon may be taking over."""
    given = client._reconnect_s
    until = time.monotonic() + (_PATIENCE_S if given is None else given)
    while True:
        try:
            return client.latest_checkpoint(job, **options)
        except Unreachable:
            if time.monotonic() > until:
                raise
        time.sleep(_PAUSE_FIRST_S)


def _take(told: socket.socket) -> None:
    while True:
        numbers = told.recv(64)
        if _forward != -1:
            with contextlib.suppress(OSError):
                os.write(_forward, numbers)
        if signal.SIGTERM in numbers and _target is not None:
            _target()


def _preempted(worker: Worker, wait: float) -> None:
    end = time.monotonic() + wait
    what = "no checkpoint"
    try:
        number = worker.request_checkpoint("SIGTERM", leaving=True, timeout=wait)
        what = f"checkpoint {number} is not complete after {wait:g} s"
        for pause in _pauses(worker.rank):
            latest = worker.client.latest_checkpoint(worker.job, count=0)
            left = end - time.monotonic()
            if latest.closed >= number or left <= 0:
                break
            time.sleep(min(pause, left))
        if latest.number >= number:
            what = f"checkpoint {latest.number}, of iteration {latest.iteration}, is complete"
        elif latest.closed == number:
            what = f"checkpoint {number} was given up: {latest.closed_reason}"
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
