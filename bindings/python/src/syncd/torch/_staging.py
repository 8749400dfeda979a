"""Where a weighted mean arrives, and what then replaces parameters by it."""

from __future__ import annotations

import math
from typing import Any, Callable, Collection, NamedTuple, Sequence

import torch

from ..errors import Status, error_of
from ._view_group import BUCKET_BYTES


def exchanged(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and persistent buffers by name. Complex ones as pairs of real numbers."""
    transient = {
        f"{prefix}.{name}" if prefix else name
        for prefix, module in model.named_modules()
        for name in module._non_persistent_buffers_set
    }
    found = dict(model.named_parameters())
    found.update((name, one) for name, one in model.named_buffers() if name not in transient)
    tensors = {name: one.detach() for name, one in found.items()}
    return {
        name: torch.view_as_real(one) if one.is_complex() else one for name, one in tensors.items()
    }


def staged_type(tensor: torch.Tensor) -> torch.dtype:
    """Half precision is summed in single precision."""
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32


# What several operations in a row find in the cache: numbers.
_PIECE = 1 << 16


def _pieces(tensor: torch.Tensor) -> Sequence[torch.Tensor]:
    if not tensor.is_contiguous():
        return (tensor,)
    pieces: Sequence[torch.Tensor] = tensor.view(-1).split(_PIECE)
    return pieces


class _Bucket(NamedTuple):
    flat: torch.Tensor
    parts: list[tuple[str, Sequence[torch.Tensor]]]
    """Views of `flat`, in the pieces of the tensor of this name."""


class Staging:
    """One copy of a model's floating-point tensors, in buckets, and of its integers.

    tensors  of exchanged()
    device   where the collectives find it; None: where each tensor is
    buffers  names of those that may hold infinities, as masks do
    """

    def __init__(
        self,
        tensors: dict[str, torch.Tensor],
        device: torch.device | None,
        buffers: Collection[str] = (),
    ) -> None:
        self._buffers = frozenset(buffers)
        self.buckets: list[_Bucket] = []
        kinds: dict[Any, list[str]] = {}
        for name, one in tensors.items():
            if one.is_floating_point():
                kinds.setdefault((staged_type(one), device or one.device), []).append(name)
        for (kind, where), names in kinds.items():
            self._add(tensors, names, kind, where)
        self._integers = [name for name, one in tensors.items() if not one.is_floating_point()]
        self.integers: torch.Tensor | None = None
        if self._integers:
            count = sum(tensors[name].numel() for name in self._integers)
            where = device or tensors[self._integers[0]].device
            self.integers = torch.empty(count, dtype=torch.int64, device=where)

    def _add(
        self,
        tensors: dict[str, torch.Tensor],
        names: list[str],
        kind: torch.dtype,
        where: Any,
    ) -> None:
        limit = BUCKET_BYTES // (8 if kind == torch.float64 else 4)
        groups: list[list[str]] = [[]]
        held = 0
        for name in names:
            size = tensors[name].numel()
            if groups[-1] and held + size > limit:
                groups.append([])
                held = 0
            groups[-1].append(name)
            held += size
        for group in groups:
            # One more: the first bucket's last number is the weight.
            count = sum(tensors[name].numel() for name in group) + 1
            flat = torch.zeros(count, dtype=kind, device=where)
            at, parts = 0, []
            for name in group:
                one = tensors[name]
                view = flat[at : at + one.numel()]
                whole = one.is_contiguous()
                parts.append((name, _pieces(view) if whole else (view.view(one.shape),)))
                at += one.numel()
            self.buckets.append(_Bucket(flat, parts))

    def fill(
        self, tensors: dict[str, torch.Tensor], at: int, weight: float, who: str
    ) -> torch.Tensor:
        """Bucket `at` with the tensors times `weight`; 0 reads none of them.

        Raises Invalid, with the tensor's name, where one is not finite, or a buffer NaN.
        """
        flat, parts = self.buckets[at]
        if weight == 0:
            return flat.zero_()
        for name, views in parts:
            check = 0.0
            for one, view in zip(_pieces(tensors[name]), views):
                if _alike(one, view):
                    torch.mul(one, weight, out=view)
                else:
                    view.copy_(one).mul_(weight)
                check = check + view.sum()
            # A finite sum holds neither NaN nor infinity.
            if math.isfinite(check):
                continue
            if name in self._buffers:
                wrong = "NaN" if bool(tensors[name].isnan().any()) else ""
            else:
                finite = bool(tensors[name].isfinite().all())
                wrong = "" if finite else "not finite (NaN or infinity)"
            if wrong:
                raise error_of(
                    Status.E_INVALID,
                    f"{who}: {name} is {wrong}, and is not averaged; lower the "
                    "learning rate, clip gradients, or look at the loss",
                )
        flat[-1] = weight
        return flat

    def fill_integers(self, tensors: dict[str, torch.Tensor]) -> None:
        assert self.integers is not None
        parts = [tensors[name].reshape(-1) for name in self._integers]
        self.integers.copy_(torch.cat([one.to(self.integers) for one in parts]))

    def total(self) -> float:
        """Of the weights, once all have arrived."""
        return float(self.buckets[0].flat[-1].item()) if self.buckets else 0.0

    def apply(self, tensors: dict[str, torch.Tensor], total: float, outer: Outer | None) -> None:
        """The mean into the tensors; with `outer` its step decides what the parameters become. A buffer keeps
        its own number where the mean is not finite."""
        for _, parts in self.buckets:
            for name, views in parts:
                if outer is not None and name in outer.anchors:
                    outer.take(name, views, total)
                    continue
                for one, view in zip(_pieces(tensors[name]), views):
                    if name in self._buffers:
                        view.div_(total)
                        one.copy_(torch.where(view.isfinite(), view, one.to(view)))
                    elif _alike(one, view):
                        torch.div(view, total, out=one)
                    else:
                        one.copy_(view.div_(total))
        if outer is not None:
            outer.step(tensors)
        at = 0
        for name in self._integers:
            assert self.integers is not None
            one = tensors[name]
            one.copy_(self.integers[at : at + one.numel()].view(one.shape))
            at += one.numel()


def _alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    return bool(one.dtype == other.dtype and one.device == other.device)


class Outer:
    """An optimizer over the previous mean, with (previous mean - new mean) as its gradient.

    make  called with a list of parameters; all workers make the same. A large parameter comes in pieces, so
          the optimizer must be one that takes each number by itself, as SGD and Adam do
    """

    def __init__(
        self,
        make: Callable[[list[torch.nn.Parameter]], Any],
        parameters: dict[str, torch.Tensor],
    ) -> None:
        self.anchors = {
            name: [
                torch.nn.Parameter(piece) for piece in _pieces(one.to(staged_type(one), copy=True))
            ]
            for name, one in parameters.items()
            if one.is_floating_point()
        }
        self.optimizer = make(self._all())
        if not isinstance(self.optimizer, torch.optim.Optimizer):
            kind = type(self.optimizer).__name__
            raise error_of(
                Status.E_INVALID,
                f"outer= gives an object of type {kind}; allowed: a function that makes an optimizer, such "
                "as lambda params: torch.optim.SGD(params, lr=0.7, momentum=0.9, nesterov=True)",
            )

    def take(self, name: str, sums: Sequence[torch.Tensor], total: float) -> None:
        """Overwrites `sums`."""
        for anchor, sum_of in zip(self.anchors[name], sums):
            if _alike(anchor, sum_of):
                anchor.grad = torch.sub(anchor.detach(), sum_of, alpha=1 / total, out=sum_of)
            else:
                anchor.grad = anchor.detach() - sum_of.to(anchor) / total

    def step(self, tensors: dict[str, torch.Tensor]) -> None:
        with torch.enable_grad():  # which some optimizers set themselves
            self.optimizer.step()
        for name, anchors in self.anchors.items():
            for anchor, one in zip(anchors, _pieces(tensors[name])):
                anchor.grad = None
                one.copy_(anchor.detach())

    def state(self) -> dict[str, Any]:
        return {
            "anchors": [one.detach().cpu() for one in self._all()],
            "optimizer": self.optimizer.state_dict(),
        }

    def _all(self) -> list[torch.nn.Parameter]:
        return [piece for pieces in self.anchors.values() for piece in pieces]

    def load(self, state: dict[str, Any]) -> None:
        for anchor, one in zip(self._all(), state["anchors"]):
            anchor.detach().copy_(one)
        self.optimizer.load_state_dict(state["optimizer"])


def layout(tensors: dict[str, torch.Tensor]) -> list[str]:
    """Each tensor's name, shape and kind, as a line."""
    return [
        f"{name} {list(one.shape)} {str(one.dtype).rpartition('.')[2]}"
        for name, one in tensors.items()
    ]


def first_difference(own: Sequence[str], other: Sequence[str]) -> tuple[str, str]:
    """The first line of each that the other has not in this place."""
    for one, two in zip(own, other):
        if one != two:
            return one, two
    end = min(len(own), len(other))
    return (
        own[end] if end < len(own) else "nothing more",
        other[end] if end < len(other) else "nothing more",
    )
