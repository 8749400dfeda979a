"""Several ranks that train one model together, as under FSDP2, tensor parallel or DDP: one worker of the job.

The first of them leads: it joins, and what it is granted goes to the others, its mates, who do the same. So all of
them average together or not at all. Each meets the ranks of its own place in the other replicas.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from datetime import timedelta
from typing import Any, Callable, NamedTuple, TypeVar

import torch
import torch.distributed as dist

from .._values import Pushed
from ..checkpoint import _on_sigterm
from ..errors import Error, Status, error_of
from . import _compat
from ._job import Options
from ._view_group import Skipped, await_work

T = TypeVar("T")

# The leader may wait at a barrier for so long. A rank whose process ends is noticed at once, one whose machine is
# off where they agree.
_TIMEOUT = timedelta(days=1)
# A mate ends so many seconds after SIGTERM at the latest. torchrun kills after 30 s.
_LAST_S = 25.0


class Replica:
    """The ranks of torch.distributed's world, which all make it. Its calls are made by all of them, in the same
    order.

    Raises Error (SYNCD_E_STATE) if torch.distributed is not initialized, and from its calls Error
    (SYNCD_E_BROKEN) once a rank has ended.
    """

    def __init__(self) -> None:
        if not dist.is_available() or not dist.is_initialized():
            raise error_of(
                Status.E_STATE,
                "replica=True without torch.distributed; allowed: after init_process_group(), of the ranks "
                "that train one model together",
            )
        self.rank: int = dist.get_rank()
        self.size: int = dist.get_world_size()
        self._group: Any = dist.new_group(backend="gloo", timeout=_TIMEOUT)
        self._ended = threading.Event()
        self._terminated = False  # a mate that has got SIGTERM

    @property
    def leads(self) -> bool:
        return self.rank == 0

    def share(self, make: Callable[[], T]) -> T:
        """What make() gives to the leader; on all. An exception of it ends the mates with an Error."""
        found: list[Any] = [None, None]
        if self.leads:
            try:
                found[0] = make()
            except (Error, Skipped) as error:
                found[1] = error
            except BaseException as error:
                why = error_of(Status.E_BROKEN, f"rank 0 of the replica has failed: {error!r}")
                self._call(lambda: dist.broadcast_object_list([None, why], 0, self._group))
                raise
        self._call(lambda: dist.broadcast_object_list(found, 0, self._group))
        if found[1] is not None:
            raise found[1]
        result: T = found[0]
        return result

    def gather(self, own: T) -> list[T]:
        """What each gives, in the order of the ranks."""
        found: list[Any] = [None] * self.size
        self._call(lambda: dist.all_gather_object(found, own, self._group))
        return found

    def agree(
        self, failure: BaseException | None, meanwhile: Callable[[], None], timeout_s: float
    ) -> None:
        """Raises what has failed on a rank on all of them: an Error before anything else. Calls meanwhile()
        until all have come, for `timeout_s` at most."""
        failed = torch.tensor([0 if failure is None else 1])

        def reduce() -> None:
            work = dist.all_reduce(failed, dist.ReduceOp.MAX, self._group, async_op=True)
            end = time.monotonic() + timeout_s

            def check() -> None:
                if time.monotonic() > end:
                    raise RuntimeError(f"not within {timeout_s:g} s")
                meanwhile()

            await_work(work, check)

        self._call(reduce)
        if failed.item() == 0:
            return
        failures = [one for one in self.gather(failure) if one is not None]
        if isinstance(failure, Error):
            raise failure
        for one in sorted(failures, key=lambda found: not isinstance(found, Error)):
            raise one

    def outlast_sigterm(self) -> None:
        """A mate that gets SIGTERM goes on until its leader has saved and ended. Call it in the main thread."""

        def terminate() -> None:
            self._terminated = True
            self._ended.wait(_LAST_S)
            _exit_terminated()

        _on_sigterm(terminate)

    def close(self) -> None:
        """When this rank leaves: later calls of the others end with an Error."""
        self._ended.set()
        if self._terminated:
            _exit_terminated()  # whatever the leader's end has brought about here
        group, self._group = self._group, None
        if group is not None:
            with contextlib.suppress(RuntimeError, ValueError):
                dist.destroy_process_group(group)

    def _call(self, collective: Callable[[], Any]) -> None:
        try:
            if self._group is None:
                raise RuntimeError("this rank has left")
            collective()
        except RuntimeError as error:
            raise error_of(
                Status.E_BROKEN,
                f"a rank of this replica has left, or cannot be reached ({error}); all must train equally many "
                "batches; if one was lost, start all of them again",
            ) from error


def _exit_terminated() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(143)


class Joined(NamedTuple):
    """What a mate has instead of a worker: its leader's numbers."""

    job: str
    rank: int
    world_size: int
    checkpoint: int = 0

    def push(self, *_: Any) -> Pushed:
        return Pushed(0, False)

    def leave(self, **_: Any) -> None: ...


class Nobody:
    """What a mate has instead of a client."""

    address = None

    def close(self) -> None: ...


def check_whole(model: torch.nn.Module) -> None:
    for name, one in model.named_parameters():
        if _compat.is_distributed(one) or _compat.is_flat(one):
            raise error_of(
                Status.E_UNSUPPORTED,
                f"{name} is a {type(one).__name__}, of which each rank holds a part; allowed for averaging: a model "
                "that every worker has whole, or replica=True with rank= and world_size= of the replicas",
            )


def replica_of(options: Options, model: torch.nn.Module) -> Replica:
    if options.rank is None or options.world_size is None:
        raise error_of(
            Status.E_INVALID,
            "replica=True without rank= and world_size=; allowed: the number of this replica, from 0, and how "
            "many there are",
        )
    if options.address in (None, "auto") and not os.environ.get("SYNCD_ADDR"):
        raise error_of(
            Status.E_INVALID,
            "replica=True without the address of a daemon that all replicas reach; allowed: SYNCD_ADDR or address=",
        )
    for key, object_ in options.state.items():
        if _holds_parts(object_.state_dict()):
            raise error_of(
                Status.E_UNSUPPORTED,
                f"state[{key!r}] has DTensors; allowed with replica=True: objects that each rank has whole",
            )
    made = Replica()
    for name, one in model.named_parameters():
        if _compat.is_flat(one):
            raise error_of(
                Status.E_UNSUPPORTED,
                f"{name} is a shard of FSDP 1; allowed: fully_shard() of FSDP 2, DTensors, or whole parameters",
            )
        if _compat.is_distributed(one) and one.device_mesh.size() != made.size:
            raise error_of(
                Status.E_UNSUPPORTED,
                f"{name} lies on {one.device_mesh.size()} of {made.size} ranks; allowed: a replica whose DTensors "
                "lie on all ranks of torch.distributed's world",
            )
    return made


def _holds_parts(value: Any) -> bool:
    if isinstance(value, dict):
        return any(_holds_parts(one) for one in value.values())
    if isinstance(value, (list, tuple)):
        return any(_holds_parts(one) for one in value)
    return _compat.is_distributed(value)


def local_state(state: dict[Any, Any]) -> dict[Any, Any]:
    """An optimizer's state, of DTensors this rank's part."""
    return {
        key: {name: _compat.local(one) for name, one in of_one.items()} if isinstance(of_one, dict) else of_one
        for key, of_one in state.items()
    }


def spread_state(optimizer: torch.optim.Optimizer, state: dict[Any, Any]) -> dict[Any, Any]:
    """The other way round: what is as large as this rank's part of a parameter is spread as that is."""
    parameters = [one for group in optimizer.param_groups for one in group["params"]]

    def spread(like: Any, one: Any) -> Any:
        if not _compat.is_distributed(like) or not isinstance(one, torch.Tensor):
            return one
        part = _compat.local(like.detach())
        return _compat.distributed_like(one.to(part.device), like) if one.shape == part.shape else one

    return {
        key: {name: spread(parameters[key], one) for name, one in of_one.items()}
        if isinstance(of_one, dict) and isinstance(key, int) and key < len(parameters)
        else of_one
        for key, of_one in state.items()
    }
