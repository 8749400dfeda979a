"""What a Client and its Workers give: plain values."""

from __future__ import annotations

import enum
from typing import NamedTuple


class Step(NamedTuple):
    """What begin() granted."""

    iteration: int
    """The iteration to run now, from 0."""
    pull: bool
    """Parameters changed since this worker's last pull: renew them."""
    barrier: bool
    """A planned global synchronization has just happened (elastic_bsp)."""
    skip: bool
    """The iteration moved ahead of the one that was due: renew the parameters first."""
    stop: bool
    """The job has ended: do not compute, leave."""
    staleness: int
    """Iterations by which this worker is ahead of the slowest active one."""
    view: int = 0
    """Jobs with views, as are the next three: the view's number, from 1. Else 0."""
    view_rank: int = 0
    """This worker's place in it, from 0."""
    view_size: int = 0
    """How many are in it."""
    view_data: bytes = b""
    """What the view's first gave to begin(data=...)."""
    reason: str = ""
    """For people. With `stop`: why; it begins with "finished" where the others have ended their work.
    Else: why the view is another than before."""
    resumed: bool = False
    """The first step of a group that was started again, which goes on at this iteration, beyond 0: begin
    with the model of that iteration."""
    checkpoint: int = 0
    """Save the parameters as they are now, before this iteration, as this checkpoint; 0: do not."""


class CheckpointShard(NamedTuple):
    """One part of a checkpoint."""

    shard: int
    rank: int
    """Of the worker that saved it."""
    iteration: int
    """The one that this worker was about to begin: where to continue."""
    location: str


class Checkpoint(NamedTuple):
    """The latest complete checkpoint of a job."""

    number: int
    """Within its epoch, from 1; 0: none is complete."""
    epoch: int
    iteration: int
    """The lowest of its shards'; -1: none is complete."""
    completed: float
    """When, in seconds since the Unix epoch."""
    shards: tuple[CheckpointShard, ...]
    open: int
    """The checkpoint that workers save now; 0: none."""
    closed: int
    """The latest one that is complete or was given up; 0: none."""
    closed_reason: str
    """Why it was given up; empty: it is complete."""
    shard_count: int = 0
    """How many shards it has; `shards` has those that were asked for."""


class ViewMember(NamedTuple):
    """One worker of a view."""

    rank: int
    """Its place in the view."""
    name: str
    host: str
    data: bytes
    """What it gave to begin(data=...)."""


class View(NamedTuple):
    """Workers that were granted together."""

    number: int
    reason: str
    """Why it is another than the one before, for people."""
    members: tuple[ViewMember, ...]
    """In the order of their places."""


class Round(NamedTuple):
    """What has become of the latest view that was granted to a worker."""

    number: int
    """0: none was granted."""
    gone: int
    """Members of it that were lost, failed, were preempted, left, were excluded or made spare, or began
    anew: it is broken. Finished ones are not counted."""
    room: int
    """Workers that wait and could be taken into the next."""


class Pushed(NamedTuple):
    """What became of a push."""

    iteration: int
    late: bool
    """The others have gone on without this update: drop the gradient."""


class WaitedFor(NamedTuple):
    """One worker that another one waits for."""

    rank: int
    name: str
    host: str
    clock: int
    """Iterations completed; decentralized: the iteration it is in."""
    last_push_age: float | None
    """Seconds since its last push; None: it has not pushed yet."""
    state: str
    """For people: "in iteration 8 for 41.2 s", "disconnected 3.2 s ago", "not joined", ..."""


class Explanation(NamedTuple):
    """Why a call is not answered yet. str() gives the text."""

    text: str
    """The whole as one sentence."""
    rule: str
    """The policy, or "start" while the job has not begun."""
    iteration: int
    """The one that was asked for."""
    waiting: float
    """Seconds since then."""
    ranks: str
    """All who are waited for, as ranges: "4, 23, 40-47"."""
    count: int  # type: ignore[assignment]  # in place of tuple's method
    """How many they are."""
    workers: tuple[WaitedFor, ...]
    """The first 8 of them at most, in rank order."""

    def __str__(self) -> str:
        return self.text


class Update(NamedTuple):
    """One update to reduce."""

    rank: int
    """Whose it is; this worker's own is among them."""
    iteration: int
    """The sender's iteration."""
    weight: float
    """Its share in the reduced parameters; those of one answer sum up to 1."""


class MemberState(enum.IntEnum):
    """What has become of a member."""

    ACTIVE = 0
    """Connected."""
    DISCONNECTED = 1
    """Its connection is gone; its place is kept for exit_grace, or worker_grace if it was silent."""
    LEFT = 2
    """Its place is free."""
    LOST = 3
    """Given up; its place is free, and it may come back."""


class Member(NamedTuple):
    """One member of a job."""

    rank: int
    state: MemberState
    clock: int
    """Iterations completed; decentralized: the iteration it is in."""
    name: str
    host: str
    data: bytes
    """What it gave to join(data=...)."""


class Members(NamedTuple):
    """Who takes part in a job."""

    version: int
    """Every change up to it is in the list. It grows with every change."""
    members: tuple[Member, ...]
    """In rank order."""


class EventKind(enum.IntEnum):
    """What on_event is called for."""

    RESYNC = 1
    """should_resync() is true now, for `iteration`."""
    MEMBERS = 2
    """Somebody has joined, left, been lost, cut off or come back, or shows other data: members()
    says who is there. Told once until members() is called again."""
    PLAN = 3
    """elastic_bsp has planned when all meet next: this worker after its push of `iteration`."""
    STOP = 4
    """The job was stopped or has finished."""
    ROUND = 5
    """round() has news of the round `version`."""
    STRAGGLER = 6
    """The iterations of a worker, `rank`, take `factor` times their usual time, beside the others',
    or their usual time again (`recovered`). Told to that worker, and to the one of lowest rank that
    has an on_event."""
    HANG = 7
    """A worker of a job under observation has waited for hang_after: `text` says for whom, `rank` is
    the first of them (None: all are in the same state). Told to all, and again when others are
    at fault than before."""


class Event(NamedTuple):
    """Something that a worker is told without asking."""

    kind: EventKind
    iteration: int | None
    """RESYNC, PLAN, HANG."""
    wait: float | None
    """PLAN: for how many seconds the first to arrive waits, as foreseen; None: not known."""
    version: int | None
    """MEMBERS: of the list as it is now. ROUND: the round's number."""
    rank: int | None = None
    """STRAGGLER: of whom. HANG: who is at fault, or the first of them."""
    recovered: bool = False
    """STRAGGLER: it computes as usual again."""
    factor: float | None = None
    """STRAGGLER: how many times its usual time its iterations take."""
    since: float | None = None
    """STRAGGLER: since when, as time.time() counts."""
    text: str | None = None
    """STRAGGLER, HANG: as a sentence, with the worker's name and host."""
