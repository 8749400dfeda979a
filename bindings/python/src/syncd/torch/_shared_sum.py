"""Sums of tensors by shared memory: what an all-reduce does, for workers of one machine.

Each worker has a segment of its own, which only it writes: a header, its tensors, and room for as many sums. The
others of a view read there:

    fill     each writes its tensors, and then into its header for which averaging they are
    sum      once all have, each adds up its part of all tensors, and says so in the same way
    gather   once all have, each copies all sums over its own tensors

A worker fills for the next averaging only when all are in it. One that is still in this one has been given up by the
others: after gather it finds another number in a header, and skips, because what it copied may be no sum.
"""

from __future__ import annotations

import json
import mmap
import os
import time
import weakref
from typing import Any, Callable, Iterator, Sequence

import torch

from .. import _same_machine
from .._same_machine import Where

_HEADER = 4096
_FILLED, _SUMMED, _WHOLE, _FAILED = range(4)  # numbers of averagings in the header
_ALIGNED = 64
_PIECE = 1 << 15  # numbers, of which several workers' fit into the processor's cache
_PAUSE_FIRST_S = 20e-6
_PAUSE_MAX_S = 200e-6
_GIVEN_UP = "the others have gone on without this worker"

Kinds = Sequence[tuple[torch.dtype, int]]


class Broken(RuntimeError):
    """Another worker has given this averaging up. What was copied is no sum."""


class _Mapped:
    """A segment: its header, its tensors and its sums."""

    def __init__(self, memory: mmap.mmap, kinds: Kinds) -> None:
        self.header = memoryview(memory)[:_HEADER].cast("Q")
        places = list(_places(kinds))

        def tensors(base: int) -> list[torch.Tensor]:
            return [
                torch.frombuffer(memory, dtype=kind, count=count, offset=base + at)
                for (kind, count), at in zip(kinds, places)
            ]

        self.tensors, self.sums = tensors(_HEADER), tensors(_HEADER + places[-1])


def _places(kinds: Kinds) -> Iterator[int]:
    """Where each begins, and the end."""
    at = 0
    for kind, count in kinds:
        yield at
        size = count * torch.empty(0, dtype=kind).element_size()
        at += -(-size // _ALIGNED) * _ALIGNED
    yield at


def _size(kinds: Kinds) -> int:
    return _HEADER + 2 * list(_places(kinds))[-1]


class Segment(_Mapped):
    """This worker's own. Pages of it take memory once they are written: the tensors, and its part of the sums.

    kinds  of the tensors: type, and how many numbers
    """

    def __init__(self, kinds: Kinds) -> None:
        self.kinds = kinds
        size = _size(kinds)
        descriptor = os.memfd_create("syncd-averaging")
        weakref.finalize(self, os.close, descriptor)
        os.truncate(descriptor, size)
        super().__init__(mmap.mmap(descriptor, size), kinds)
        place = _same_machine.place().hex()
        self.card = json.dumps([place, *_same_machine.where(descriptor)])
        """For the others of a view."""

    def map(self, card: str) -> _Mapped:
        """Another worker's. Raises OSError where it is on another machine, or cannot be opened."""
        place, *there = json.loads(card)
        if place != _same_machine.place().hex():
            raise OSError("it is on another machine, or in another container")
        opened = _same_machine.open_there(Where(*there))
        try:
            return _Mapped(mmap.mmap(opened, _size(self.kinds)), self.kinds)
        except ValueError as error:
            raise OSError(f"its memory is smaller: {error}") from error
        finally:
            os.close(opened)


class SharedSum:
    """The segments of a view's members, in the order of their places.

    Raises OSError where one of them is not to be had.
    """

    def __init__(self, own: Segment, rank: int, cards: Sequence[str]) -> None:
        self._rank = rank
        self._all: list[_Mapped] = [
            own if at == rank else own.map(card) for at, card in enumerate(cards)
        ]
        self._own = own

    def begin(self) -> None:
        """Before the own tensors are filled."""
        self._own.header[_FILLED] = 0
        _order()

    def add_up(self, number: int, source: int, check: Callable[[], None]) -> None:
        """The sums of floating-point tensors; integers become those of the place `source`.

        number  of the averaging: a later one has a higher number
        check   may raise while others are waited for

        Raises Broken, and what check() does.
        """
        self._say(_FILLED, number)
        self._await(_FILLED, number, check)
        for at, total in enumerate(self._own.sums):
            if total.is_floating_point():
                self._add(total, [one.tensors[at] for one in self._all])
            elif self._rank == source:
                total.copy_(self._own.tensors[at])
        self._say(_SUMMED, number)
        self._await(_SUMMED, number, check)
        for at, own in enumerate(self._own.tensors):
            if not own.is_floating_point():
                own.copy_(self._all[source].sums[at])
                continue
            for rank, one in enumerate(self._all):
                part = self._part(own, rank)
                own[part].copy_(one.sums[at][part])
        _order()
        if any(one.header[_FILLED] != number for one in self._all):
            raise Broken(_GIVEN_UP)

    def _part(self, tensor: Any, rank: int) -> slice:
        count, size = tensor.numel(), len(self._all)
        return slice(count * rank // size, count * (rank + 1) // size)

    def _add(self, total: Any, tensors: Sequence[Any]) -> None:
        part = self._part(total, self._rank)
        pieces = [one[part].split(_PIECE) for one in (total, *tensors)]
        for into, one, *rest in zip(*pieces):
            if not rest:
                into.copy_(one)
                continue
            torch.add(one, rest[0], out=into)
            for another in rest[1:]:
                into.add_(another)

    def say_failed(self, number: int) -> None:
        """That this worker has given it up: the others would wait for it."""
        self._say(_FAILED, number)

    def say_whole(self, number: int) -> None:
        self._say(_WHOLE, number)

    def is_whole(self, number: int) -> bool:
        """Whether all have this averaging whole. Also of those that have ended meanwhile."""
        return all(one.header[_WHOLE] >= number for one in self._all)

    def await_whole(self, number: int, check: Callable[[], None]) -> None:
        self._await(_WHOLE, number, check)

    def _say(self, what: int, number: int) -> None:
        _order()
        self._own.header[what] = number

    def _await(self, what: int, number: int, check: Callable[[], None]) -> None:
        pause = _PAUSE_FIRST_S
        for one in self._all:
            while (said := one.header[what]) < number:
                if any(other.header[_FAILED] == number for other in self._all):
                    raise Broken("one of its workers has failed in it")
                check()
                time.sleep(pause)
                pause = min(2 * pause, _PAUSE_MAX_S)
            if said > number and what != _WHOLE:
                raise Broken(_GIVEN_UP)
        _order()


def _order() -> None:
    """Other processors see in this order what is read and written before and after: the interpreter's lock is let
    go and taken again."""
    time.sleep(0)
