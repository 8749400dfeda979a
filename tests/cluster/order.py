"""What workers saw, against the one order in which the daemon has their pushes.

Linearizability, for a log to which workers only append. All times are of one clock.
"""

import bisect
import collections
import dataclasses
import math


@dataclasses.dataclass
class Push:
    rank: int
    iteration: int
    sent: float
    acknowledged: float = math.inf  # inf: nobody said that it counts


@dataclasses.dataclass
class Grant:
    rank: int
    iteration: int
    asked: float
    granted: float


@dataclasses.dataclass
class Seen:
    """By the workers of one job. Threads only append; each worker has a rank of its own."""

    job: str
    policy: str
    pushes: list = dataclasses.field(default_factory=list)
    grants: list = dataclasses.field(default_factory=list)
    left: dict = dataclasses.field(default_factory=dict)  # rank: when it began to leave

    def acknowledged(self):
        return {(push.rank, push.iteration) for push in self.pushes if push.acknowledged < math.inf}


def faults(seen, history):
    """One line for each thing that must not be. `history`: the records of pushes, in any order."""
    found = _compare(seen, history) + _compare_order(seen, history) + _check_iterations(seen)
    return found + (_check_barrier(seen) if seen.policy == "bsp" else [])


def _key(record):
    return record["rank"], record["iteration"]


def _compare(seen, history):
    times = collections.Counter(map(_key, history))
    sent = {(push.rank, push.iteration) for push in seen.pushes}
    found = [f"lost: push {key}" for key in sorted(seen.acknowledged() - set(times))]
    found += [f"doubled: push {key}, {n} times" for key, n in sorted(times.items()) if n > 1]
    found += [f"invented: push {key}" for key in sorted(set(times) - sent)]
    lives = collections.defaultdict(set)
    for record in history:
        lives[record["rank"]].add(record["incarnation"])
    return found + [
        f"taken for another: worker {rank}, incarnations {sorted(numbers)}"
        for rank, numbers in sorted(lives.items())
        if len(numbers) > 1
    ]


def _compare_order(seen, history):
    """A push that was acknowledged before another was sent must come before it. The latest start so
    far is enough to compare with."""
    noted = {(push.rank, push.iteration): push for push in seen.pushes}
    found = []
    latest = None
    ordered = sorted(history, key=lambda record: record["sequence"])
    for push in (noted[_key(record)] for record in ordered if _key(record) in noted):
        if latest is not None and push.acknowledged < latest.sent:
            first, second = (push.rank, push.iteration), (latest.rank, latest.iteration)
            found.append(f"order: push {first} ended before {second} began, and is behind it")
        if latest is None or push.sent > latest.sent:
            latest = push
    return found


def _of_each(grants):
    ranks = collections.defaultdict(list)
    for grant in sorted(grants, key=lambda grant: grant.granted):
        ranks[grant.rank].append(grant)
    return ranks


def _check_iterations(seen):
    return [
        f"iterations: worker {rank} was granted {after.iteration} after {before.iteration}"
        for rank, grants in sorted(_of_each(seen.grants).items())
        for before, after in zip(grants, grants[1:])
        if after.iteration != before.iteration + 1
    ]


def _check_barrier(seen):
    """A worker that leaves is not waited for: it counts as having sent everything then."""
    ranks = {one.rank for one in seen.grants + seen.pushes}
    sent = collections.defaultdict(dict)  # of an iteration: when each rank sent its push
    for push in seen.pushes:
        sent[push.iteration][push.rank] = push.sent

    def opened(iteration):
        there = sent[iteration]
        return max(there.get(rank, seen.left.get(rank, math.inf)) for rank in ranks)

    opens = {before: opened(before) for before in {one.iteration - 1 for one in seen.grants}}
    return [
        f"barrier: worker {one.rank} was granted {one.iteration} before all had pushed "
        f"{one.iteration - 1}"
        for one in seen.grants
        if one.iteration > 0 and one.granted < opens[one.iteration - 1]
    ]


def answered_between(seen, asked_after, before):
    """What was asked after one moment and answered before another."""
    pairs = [(push.sent, push.acknowledged, push) for push in seen.pushes]
    pairs += [(grant.asked, grant.granted, grant) for grant in seen.grants]
    pairs.sort(key=lambda pair: pair[0])
    first = bisect.bisect_right([pair[0] for pair in pairs], asked_after)
    return [what for _, answered, what in pairs[first:] if answered < before]
