"""order.py finds each kind of fault. Quick, and without etcd."""

import copy
import math

import pytest
from order import Grant, Push, Seen, answered_between, faults

pytestmark = pytest.mark.small

WORKERS = 3
ITERATIONS = 5


def good(policy="bsp"):
    """A round takes a second: it begins with the grants, and its pushes overlap. The history has them
    in another order than they were sent in."""
    seen = Seen("job", policy)
    history = []
    for iteration in range(ITERATIONS):
        for rank in range(WORKERS):
            begin = iteration + rank / 100
            seen.grants.append(Grant(rank, iteration, begin - 0.3, begin))
            seen.pushes.append(Push(rank, iteration, begin + 0.5, begin + 0.6))
        for rank in reversed(range(WORKERS)):
            history.append({"rank": rank, "iteration": iteration, "incarnation": 7 + rank})
    for sequence, record in enumerate(history):
        record["sequence"] = 3 * sequence + 1
    return seen, history


def at(items, rank, iteration):
    """Of the history's records, or of what was seen."""
    fields = [one if isinstance(one, dict) else vars(one) for one in items]
    keys = [(one["rank"], one["iteration"]) for one in fields]
    return items[keys.index((rank, iteration))]


def lost(seen, history):
    history.remove(at(history, 1, 2))


def doubled(seen, history):
    history.append({**at(history, 1, 2), "sequence": 1000})
    at(seen.pushes, 1, 2).acknowledged = math.inf  # else the second one is in the wrong order, too


def invented(seen, history):
    seen.pushes.remove(at(seen.pushes, 2, ITERATIONS - 1))


def taken_for_another(seen, history):
    at(history, 1, 3)["incarnation"] = 99


def order(seen, history):
    """Of two workers, not neighbours in the history."""
    first, second = at(history, 0, 1), at(history, 2, 3)
    first["sequence"], second["sequence"] = second["sequence"], first["sequence"]


def barrier(seen, history):
    """Worker 0 is granted 3 before worker 2 has pushed 2."""
    grant = at(seen.grants, 0, 3)
    grant.asked, grant.granted = 2.3, 2.515


def barrier_without_one(seen, history):
    """Worker 2 never pushes 3, and does not leave; the others are granted 4."""
    seen.pushes.remove(at(seen.pushes, 2, 3))
    seen.pushes.remove(at(seen.pushes, 2, 4))
    seen.grants.remove(at(seen.grants, 2, 4))
    history.remove(at(history, 2, 3))
    history.remove(at(history, 2, 4))


def iterations_skip(seen, history):
    seen.grants.remove(at(seen.grants, 1, 2))


def iterations_go_back(seen, history):
    at(seen.grants, 1, 4).iteration = 2


@pytest.mark.parametrize(
    "doctor, kind",
    [
        (lost, "lost"),
        (doubled, "doubled"),
        (invented, "invented"),
        (taken_for_another, "taken for another"),
        (order, "order"),
        (barrier, "barrier"),
        (barrier_without_one, "barrier"),
        (iterations_skip, "iterations"),
        (iterations_go_back, "iterations"),
    ],
)
def test_each_fault_is_found_and_named(doctor, kind):
    seen, history = good()
    doctor(seen, history)
    found = faults(seen, history)
    assert found and {line.partition(":")[0] for line in found} == {kind}, found


def test_a_good_history_has_no_fault():
    seen, history = good()
    assert faults(seen, history) == []
    assert faults(seen, list(reversed(history))) == [], "its records may come in any order"


def test_what_may_be():
    # Acknowledged is less than counted: an answer may be lost.
    seen, history = good()
    at(seen.pushes, 1, 4).acknowledged = math.inf
    assert faults(seen, history) == []
    history.remove(at(history, 1, 4))
    assert faults(seen, history) == []

    # Who leaves is not waited for.
    seen, history = good()
    barrier_without_one(seen, history)
    seen.left[2] = 3.5
    assert faults(seen, history) == []
    seen.left[2] = 4.005
    assert faults(seen, history) == [
        "barrier: worker 0 was granted 4 before all had pushed 3"
    ]

    # Under asp there is no barrier.
    seen, history = good("asp")
    barrier(seen, history)
    assert faults(seen, history) == []


def test_pushes_that_overlap_have_no_order():
    seen, history = good()
    swapped = copy.deepcopy(history)
    first, second = at(swapped, 0, 1), at(swapped, 2, 1)
    first["sequence"], second["sequence"] = second["sequence"], first["sequence"]
    assert faults(seen, swapped) == []


def test_answers_between_two_moments():
    seen, _ = good()
    assert answered_between(seen, 4.505, 4.6) == []
    assert answered_between(seen, 4.505, 4.615) == [at(seen.pushes, 1, 4)]
    assert answered_between(seen, 3.715, 4.025) == [at(seen.grants, 2, 4)]
