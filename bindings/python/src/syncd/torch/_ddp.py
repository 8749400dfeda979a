"""DDP under observation."""

from __future__ import annotations

from typing import Any, Callable, Literal

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

from .._observe import observe
from .._values import Event
from ..errors import Error, Status


def ddp(
    model: torch.nn.parallel.DistributedDataParallel,
    *,
    job: str | None = None,
    hang_after: float | Literal["auto"] = "auto",
    hook: Callable[[Any, Any], Any] | None = None,
    state: Any = None,
    on_hang: Callable[[Event], object] | None = None,
    address: str | None = None,
) -> torch.nn.parallel.DistributedDataParallel:
    """Puts a DDP training under observation: when a rank hangs, all are told which one it is.

        model = syncd.torch.ddp(DDP(net), job="resnet", hang_after=30)

    Nothing else changes. It registers a comm hook around DDP's all-reduce, which marks when this
    rank's gradients are ready and when they have been reduced, and never waits. One iteration is one
    backward that reduces: those under no_sync() belong to the next one. Rank and size are those of
    torch.distributed; `model.syncd` is the Observer.

    job, hang_after, on_hang, address  as for syncd.observe()
    hook, state  your own comm hook and its state; None: all-reduce, and the mean

    Raises Error (SYNCD_E_INVALID) if the model is no DistributedDataParallel, and what
    syncd.observe() does.
    """
    if not isinstance(model, torch.nn.parallel.DistributedDataParallel):
        kind = type(model).__name__
        raise Error(
            f"model is of type {kind}; allowed: DistributedDataParallel(module)", Status.E_INVALID
        )
    group = model.process_group
    observer = observe(
        job,
        hang_after=hang_after,
        on_hang=on_hang,
        rank=dist.get_rank(group),
        world_size=dist.get_world_size(group),
        address=address,
        continuous=True,
    )
    if hook is None:
        state = group
    reduce = hook or allreduce_hook

    def watched(hook_state: Any, bucket: Any) -> Any:
        if not bucket.is_last():
            return reduce(hook_state, bucket)
        observer.computed(_event_now(bucket.buffer()))
        return reduce(hook_state, bucket).then(reduced)

    def reduced(future: Any) -> Any:
        value = future.value()  # raises what the collective did
        tensor = value[0] if isinstance(value, list) else value
        observer.end(_event_now(tensor))
        return tensor

    # DDP compares them with the classes, which this file's are not.
    watched.__annotations__ = {
        "bucket": dist.GradBucket,
        "return": torch.futures.Future[torch.Tensor],
    }
    model.register_comm_hook(state, watched)
    object.__setattr__(model, "syncd", observer)
    return model


def _event_now(tensor: torch.Tensor) -> Any:
    """What is over when the device has done all that it was given so far; None: the CPU."""
    if not tensor.is_cuda:
        return None
    event = torch.cuda.Event()
    event.record(torch.cuda.current_stream(tensor.device))
    return event
