"""The batches of a loop, as long as it goes on."""

from __future__ import annotations

from typing import Any, Iterable, Iterator

import torch

from ..errors import Status, error_of


class Batches:
    """Batches of a loader, which begins again when it has ended.

    loader   a DataLoader or another iterable; None: every batch is None. A sampler's set_epoch() is called
             with the number of each pass
    passes   after so many it ends; None: never
    who      names the worker in errors
    numbers  of the passes, one after the other
    """

    def __init__(
        self,
        loader: Iterable[Any] | None,
        passes: int | None,
        who: str,
        numbers: Iterator[int],
    ) -> None:
        self.loader = loader
        self._passes = passes
        self._who = who
        self._pass = -1
        self._numbers = numbers
        self._of_this_pass = 0
        self._batches: Iterator[Any] | None = None

    def passed(self) -> int:
        """How many passes are over, one whose last batch has just been given included."""
        if self._pass < 0:
            return 0
        loader: Any = self.loader
        try:
            is_over = self._batches is None or self._of_this_pass == len(loader)
        except TypeError:  # it has no length
            is_over = False
        return self._pass + is_over

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self.loader is None:
            return None
        while True:
            if self._batches is None:
                self._begin_pass()
            assert self._batches is not None
            try:
                batch = next(self._batches)
            except StopIteration:
                self._batches = None
                self._check_ended()
                continue
            self._of_this_pass += 1
            return batch

    def _begin_pass(self) -> None:
        if self._passes is not None and self._pass + 1 >= self._passes:
            raise StopIteration
        self._pass += 1
        self._of_this_pass = 0
        set_epoch = getattr(getattr(self.loader, "sampler", None), "set_epoch", None)
        number = next(self._numbers)
        if set_epoch is not None:
            set_epoch(number)
        assert self.loader is not None
        self._batches = iter(self.loader)

    def _check_ended(self) -> None:
        if self._passes is not None and self._pass + 1 >= self._passes:
            return
        if self._of_this_pass == 0:
            what = "has no batches" if self._pass == 0 else "has ended, and cannot begin again"
            raise error_of(
                Status.E_INVALID,
                f"{self._who}: the loader {what}; allowed: a DataLoader, or another iterable that gives "
                "batches each time it is iterated",
            )


def split(batch: Any, parts: int) -> list[Any]:
    """A batch in `parts` of nearly equal size along the first dimension of its tensors, in order. Tuples,
    lists and dictionaries of tensors are split member by member; fewer parts where the batch is shorter.

    Raises Error (SYNCD_E_INVALID) for what is no tensor, and for tensors that differ in that dimension.
    """
    sizes = {len(tensor) for tensor in _tensors(batch)}
    if len(sizes) != 1 or 0 in sizes:
        raise error_of(
            Status.E_INVALID,
            f"the batch's tensors have {sorted(sizes)} samples; allowed: equally many, and at least one",
        )
    size = sizes.pop()
    parts = min(parts, size)
    bounds = [size * part // parts for part in range(parts + 1)]
    return [_cut(batch, low, high) for low, high in zip(bounds, bounds[1:])]


def _tensors(batch: Any) -> Iterator[torch.Tensor]:
    if isinstance(batch, torch.Tensor):
        if batch.dim() == 0:
            raise error_of(Status.E_INVALID, "the batch holds a tensor of one number; allowed: samples in rows")
        yield batch
    elif isinstance(batch, dict):
        for one in batch.values():
            yield from _tensors(one)
    elif isinstance(batch, (tuple, list)):
        for one in batch:
            yield from _tensors(one)
    else:
        kind = type(batch).__name__
        raise error_of(
            Status.E_INVALID,
            f"the batch holds an object of type {kind}; allowed: tensors, and tuples, lists and "
            "dictionaries of them",
        )


def _cut(batch: Any, low: int, high: int) -> Any:
    if isinstance(batch, torch.Tensor):
        return batch[low:high]
    if isinstance(batch, dict):
        return {key: _cut(one, low, high) for key, one in batch.items()}
    cut = [_cut(one, low, high) for one in batch]
    if isinstance(batch, tuple):
        # A named tuple takes its members one by one.
        return type(batch)(*cut) if hasattr(batch, "_fields") else tuple(cut)
    return cut
