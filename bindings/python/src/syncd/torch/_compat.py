"""What differs between versions of torch, from 1.13 on."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
from datetime import timedelta
from typing import Any, Iterator

import torch
import torch.distributed as dist

from ..torchrun import _Stores


@functools.lru_cache(maxsize=None)
def stores() -> _Stores:
    """Makes TCP stores, with libuv where the build has it."""
    return _Stores()


def gloo_group(store: Any, rank: int, size: int, timeout_s: float, host: str) -> Any:
    """A process group over gloo that torch.distributed does not know.

    host: of this machine, at which the others reach it; GLOO_SOCKET_IFNAME wins
    """
    made = dist.ProcessGroupGloo
    interface = os.environ.get("GLOO_SOCKET_IFNAME")
    options = made._Options()
    options._timeout = timedelta(seconds=timeout_s)
    options._threads = 2
    if interface:
        devices = [made.create_device(interface=one) for one in interface.split(",")]
    else:
        devices = [made.create_device(hostname=host)]
    options._devices = devices
    return made(store, rank, size, options)


# Read where an NCCL group is made. Its watchdog would end the process once a member is lost.
_NCCL_ENVIRONMENT = {
    "NCCL_ASYNC_ERROR_HANDLING": "0",  # torch 1.13
    "NCCL_BLOCKING_WAIT": "0",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0",
    "TORCH_NCCL_BLOCKING_WAIT": "0",
    "TORCH_NCCL_ENABLE_MONITORING": "0",
}


def nccl_group(store: Any, rank: int, size: int, timeout_s: float) -> Any:
    """A process group over NCCL that torch.distributed does not know, without a watchdog."""
    options = dist.ProcessGroupNCCL.Options()
    options._timeout = timedelta(seconds=timeout_s)
    with _environment(_NCCL_ENVIRONMENT):
        return dist.ProcessGroupNCCL(store, rank, size, options)


def abort_group(group: Any) -> None:
    """Ends the collectives of an NCCL group, where torch can."""
    for name in ("abort", "_abort"):
        if hasattr(group, name):
            with contextlib.suppress(RuntimeError):
                getattr(group, name)()
            return


def load_tensors(file: Any) -> Any:
    """torch.load() of tensors and plain containers, onto the CPU. From torch 2 on it runs no code from the
    file; 1.13 could then not read floats."""
    if torch.__version__.startswith("1."):
        return torch.load(file, map_location="cpu")
    return torch.load(file, map_location="cpu", weights_only=True)


def note_step(optimizer: torch.optim.Optimizer) -> None:
    """A step was made elsewhere: schedulers of the learning rate warn if they see none before theirs."""
    optimizer._opt_called = True  # torch 2.4 and later
    optimizer._step_count = getattr(optimizer, "_step_count", 0) + 1


def is_distributed(tensor: Any) -> bool:
    """Whether it is a DTensor (FSDP2, tensor parallel)."""
    return any(one.__name__ == "DTensor" for one in inspect.getmro(type(tensor)))


def is_flat(parameter: torch.Tensor) -> bool:
    """Whether it is FSDP 1's flat shard."""
    kinds = {one.__name__ for one in inspect.getmro(type(parameter))}
    return "FlatParameter" in kinds or hasattr(parameter, "_is_flat_param")


def local(tensor: torch.Tensor) -> torch.Tensor:
    """Of a DTensor the part that this rank has, in its memory; any other is itself."""
    if not is_distributed(tensor):
        return tensor
    with torch.no_grad():
        part: torch.Tensor = tensor.to_local()
    return part


def described(tensor: Any) -> str:
    """How a DTensor is spread; "" of any other."""
    if not is_distributed(tensor):
        return ""
    return f" of {list(tensor.shape)}, {tensor.placements} on {tensor.device_mesh.mesh.tolist()}"


def reshard(model: torch.nn.Module) -> None:
    """Lets modules of FSDP 2 have their parameters as DTensors: after a forward without a backward, some have
    them whole."""
    for module in model.modules():
        if any(one.__name__ == "FSDPModule" for one in inspect.getmro(type(module))):
            module.reshard()


def distributed_like(part: torch.Tensor, like: Any) -> Any:
    """The DTensor of which this rank has `part`, spread as `like` is."""
    return type(like.data).from_local(
        part, like.device_mesh, like.placements, run_check=False, shape=like.shape, stride=like.stride()
    )


@contextlib.contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
