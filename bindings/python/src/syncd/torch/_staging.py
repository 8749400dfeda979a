"""Where a weighted mean arrives, and what then replaces parameters by it."""

from __future__ import annotations

import contextlib
import math
from typing import Any, Callable, Collection, Iterator, NamedTuple, Sequence

import torch

from ..errors import Status, error_of
from . import _compat
from ._shared_sum import Segment
from ._view_group import BUCKET_BYTES


def exchanged(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and persistent buffers by name, of DTensors this rank's part. Complex ones as pairs of real
    numbers."""
    transient = {
        f"{prefix}.{name}" if prefix else name
        for prefix, module in model.named_modules()
        for name in module._non_persistent_buffers_set
    }
    found = dict(model.named_parameters())
    found.update((name, one) for name, one in model.named_buffers() if name not in transient)
    tensors = {name: _compat.local(one.detach()) for name, one in found.items()}
    return {
        name: torch.view_as_real(one) if one.is_complex() else one for name, one in tensors.items()
    }


def staged_type(tensor: torch.Tensor) -> torch.dtype:
    """Half precision is summed in single precision."""
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32


# What several operations in a row find in the cache: numbers.
_PIECE = 1 << 16
_RUN = 4  # pieces


def _pieces(tensor: torch.Tensor) -> Sequence[torch.Tensor]:
    if not tensor.is_contiguous():
        return (tensor,)
    pieces: Sequence[torch.Tensor] = tensor.view(-1).split(_PIECE)
    return pieces


def _copied(tensor: torch.Tensor) -> Sequence[torch.Tensor]:
    """A copy, in the pieces of the tensor itself: that of one with gaps has none."""
    copied = tensor.to(staged_type(tensor), copy=True)
    return _pieces(copied) if tensor.is_contiguous() else (copied,)


def check_dense(model: torch.nn.Module) -> None:
    """Raises Error (SYNCD_E_UNSUPPORTED), which names the tensor, for one that cannot be averaged in place."""
    parameters = dict(model.named_parameters())
    for name, one in exchanged(model).items():
        if one.layout != torch.strided:
            has = f"has the layout {one.layout}"
        elif any(step == 0 and size > 1 for step, size in zip(one.stride(), one.shape)):
            has = "has several elements at one place, as expand() makes them"
        else:
            continue
        kind = "parameter" if name in parameters else "buffer"
        raise error_of(
            Status.E_UNSUPPORTED,
            f"{kind} {name} {has}; allowed for averaging: dense ones ({name}.to_dense(), .contiguous()). "
            "Sparse gradients of dense parameters are allowed",
        )


class _Bucket(NamedTuple):
    flat: torch.Tensor
    parts: list[tuple[str, Sequence[torch.Tensor]]]
    """Views of `flat`, in the pieces of the tensor of this name."""


def _count(tensors: dict[str, torch.Tensor], names: Sequence[str]) -> int:
    return sum(tensors[name].numel() for name in names)


def _in_buckets(
    tensors: dict[str, torch.Tensor], names: Sequence[str], kind: torch.dtype
) -> list[list[str]]:
    limit = BUCKET_BYTES // (8 if kind == torch.float64 else 4)
    groups: list[list[str]] = [[]]
    held = 0
    for name in names:
        held += tensors[name].numel()
        if groups[-1] and held > limit:
            groups.append([])
            held = tensors[name].numel()
        groups[-1].append(name)
    return groups


def _parts(
    tensors: dict[str, torch.Tensor], names: Sequence[str], flat: torch.Tensor
) -> list[tuple[str, Sequence[torch.Tensor]]]:
    """The place of each tensor in `flat`."""
    at, parts = 0, []
    for name in names:
        one = tensors[name]
        view = flat[at : at + one.numel()]
        parts.append((name, _pieces(view) if one.is_contiguous() else (view.view(one.shape),)))
        at += one.numel()
    return parts


class Staging:
    """One copy of a model's floating-point tensors, in buckets, and of its integers.

    tensors  of exchanged()
    device   where the collectives find it; None: where each tensor is
    buffers  names of those that may hold infinities, as masks do
    shared   in memory that other workers on this machine can read; device must be the CPU then
    """

    def __init__(
        self,
        tensors: dict[str, torch.Tensor],
        device: torch.device | None,
        buffers: Collection[str] = (),
        shared: bool = False,
    ) -> None:
        self._buffers = frozenset(buffers)
        kinds: dict[Any, list[str]] = {}
        for name, one in tensors.items():
            if one.is_floating_point():
                kinds.setdefault((staged_type(one), device or one.device), []).append(name)
        self._integers = [name for name, one in tensors.items() if not one.is_floating_point()]
        groups = [
            (kind, where, group)
            for (kind, where), names in kinds.items()
            for group in _in_buckets(tensors, names, kind)
        ]
        # One more: the first bucket's last number is the weight.
        wanted = [(kind, _count(tensors, group) + 1, where) for kind, where, group in groups]
        if self._integers:
            where = device or tensors[self._integers[0]].device
            wanted.append((torch.int64, _count(tensors, self._integers), where))
        self.segment = Segment([(kind, count) for kind, count, _ in wanted]) if shared else None
        if self.segment is not None:
            flats = self.segment.tensors
        else:
            flats = [torch.zeros(count, dtype=kind, device=at) for kind, count, at in wanted]
        self.integers = flats[-1] if self._integers else None
        self.buckets = [
            _Bucket(flat, _parts(tensors, group, flat)) for (_, _, group), flat in zip(groups, flats)
        ]

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
        sums = {name: views for _, parts in self.buckets for name, views in parts}
        if outer is not None:
            outer.apply(tensors, {name: sums.pop(name) for name in outer.anchors}, total)
        for name, views in sums.items():
            for one, view in zip(_pieces(tensors[name]), views):
                if name in self._buffers:
                    view.div_(total)
                    one.copy_(torch.where(view.isfinite(), view, one.to(view)))
                elif _alike(one, view):
                    torch.div(view, total, out=one)
                else:
                    one.copy_(view.div_(total))
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
            name: [torch.nn.Parameter(piece) for piece in _copied(one)]
            for name, one in parameters.items()
            if one.is_floating_point()
        }
        self.optimizer = make(self._all())
        kind = type(self.optimizer)
        if not isinstance(self.optimizer, torch.optim.Optimizer):
            raise error_of(
                Status.E_INVALID,
                f"outer= gives an object of type {kind.__name__}; allowed: a function that makes an optimizer, such "
                "as lambda params: torch.optim.SGD(params, lr=0.7, momentum=0.9, nesterov=True)",
            )

        groups = self.optimizer.param_groups
        self._group_of = {id(one): at for at, group in enumerate(groups) for one in group["params"]}
        # The optimizers of torch count steps for each parameter: they may step with some at a time.
        self._at_once = _RUN if kind.__module__.startswith("torch.optim.") else None

    def apply(
        self,
        tensors: dict[str, torch.Tensor],
        sums: dict[str, Sequence[torch.Tensor]],
        total: float,
    ) -> None:
        """A step with the mean, and what comes of it into the tensors. Overwrites `sums`."""
        pieces = [
            piece
            for name, anchors in self.anchors.items()
            for piece in zip(anchors, sums[name], _pieces(tensors[name]))
        ]
        at_once = self._at_once or max(len(pieces), 1)
        for at in range(0, len(pieces), at_once):
            self._step(pieces[at : at + at_once], total)

    def _step(
        self, pieces: Sequence[tuple[torch.nn.Parameter, torch.Tensor, torch.Tensor]], total: float
    ) -> None:
        for anchor, sum_of, _ in pieces:
            if _alike(anchor, sum_of):
                anchor.grad = torch.sub(anchor.detach(), sum_of, alpha=1 / total, out=sum_of)
            else:
                anchor.grad = anchor.detach() - sum_of.to(anchor) / total
        # Some optimizers set the gradients' mode themselves, and want it on.
        with self._only([anchor for anchor, _, _ in pieces]), torch.enable_grad():
            self.optimizer.step()
        for anchor, _, one in pieces:
            anchor.grad = None
            one.copy_(anchor.detach())

    @contextlib.contextmanager
    def _only(self, anchors: Sequence[torch.nn.Parameter]) -> Iterator[None]:
        """The optimizer has only these, if it may step with some at a time: it would look at all others."""
        groups = self.optimizer.param_groups
        if self._at_once is None:
            yield
            return
        every = [group["params"] for group in groups]
        try:
            for group in groups:
                group["params"] = []
            for anchor in anchors:
                number = self._group_of.get(id(anchor))
                if number is not None:
                    groups[number]["params"].append(anchor)
            self.optimizer.param_groups = [group for group in groups if group["params"]]
            yield
        finally:
            self.optimizer.param_groups = groups
            for group, members in zip(groups, every):
                group["params"] = members

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


def layout(tensors: dict[str, torch.Tensor], model: torch.nn.Module | None = None) -> list[str]:
    """Each tensor's name, shape and kind, and of the model's DTensors how they are spread, as a line."""
    spread: dict[str, str] = {}
    if model is not None:
        for named in (model.named_parameters(), model.named_buffers()):
            spread.update((name, _compat.described(one)) for name, one in named)
    return [
        f"{name} {list(one.shape)} {str(one.dtype).rpartition('.')[2]}{spread.get(name, '')}"
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
