"""What the members of a view show to each other, and what they do by it. Pure: all of them find the same."""

from __future__ import annotations

import json
from typing import NamedTuple, Sequence

# Of an average: (epoch, view).
Label = tuple[int, int]


class Shown(NamedTuple):
    """What each worker of a view shows to the others."""

    rank: int
    """In the job."""
    address: str
    """Of its store."""
    label: Label | None
    averagings: int
    layout: str
    """A hash of names, shapes and kinds."""

    def encode(self) -> bytes:
        return json.dumps(self, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes) -> Shown:
        rank, address, label, averagings, of_tensors = json.loads(data)
        return cls(
            rank,
            address,
            None if label is None else (label[0], label[1]),
            averagings,
            of_tensors,
        )


class Plan(NamedTuple):
    """What the members of a view do, which all of them derive from the same data."""

    source: int
    """The place of the first that has the latest average."""
    takers: tuple[int, ...]
    """The places of those that have not: they take what the source has, and weigh 0."""
    label: Label
    """Of this view's average."""
    at_start: bool
    """Nobody has an average yet."""

    @property
    def name(self) -> str:
        """Of the view, which no other one of the job has."""
        return f"{self.label[0]}.{self.label[1]}"

    @property
    def number(self) -> int:
        """Of the view: higher than that of any earlier one."""
        return self.label[0] << 40 | self.label[1]


def plan_of(labels: Sequence[Label | None], view: int) -> Plan:
    """labels: in the order of the view's places."""
    highest = max((one for one in labels if one is not None), default=None)
    if highest is None:
        # As if the first alone had one: no two models that began at random are ever mixed.
        return Plan(0, tuple(range(1, len(labels))), (1, view), True)
    takers = tuple(at for at, one in enumerate(labels) if one != highest)
    # The numbers of views begin anew with a launch that continues from a checkpoint.
    epoch = highest[0] if view > highest[1] else highest[0] + 1
    return Plan(labels.index(highest), takers, (epoch, view), False)
