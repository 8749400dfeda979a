"""The form "averaging" with real processes: one is killed, comes back, or fails."""

import os
import signal

import pytest

from conftest import HERE

WORKERS = 4
EXAMPLE = HERE.parent / "examples/torch_averaging.py"
ENDLESS = 10**6


@pytest.fixture
def start(daemon, run):
    def start(rank, script, *arguments, world=WORKERS):
        env = {
            "SYNCD_ADDR": daemon.address,
            "RANK": str(rank),
            "WORLD_SIZE": str(world),
            "GLOO_SOCKET_IFNAME": "lo",
            "USE_LIBUV": os.environ.get("USE_LIBUV", "0"),
        }
        return run(script, *arguments, env=env)

    return start


def results(process):
    code, out, err = process.finish()
    assert code == 0, err
    rows = [line.split() for line in out.splitlines() if not line.startswith("own")]
    return {int(number): float(value) for number, value in rows}


def in_common(all_results):
    """What all have seen must be the same."""
    numbers = set.intersection(*(set(one) for one in all_results))
    for number in numbers:
        assert len({one[number] for one in all_results}) == 1, number
    return numbers


def test_one_is_killed_and_comes_back_with_the_others_parameters(daemon, start):
    workers = [start(rank, "averaging_worker.py", ENDLESS) for rank in range(WORKERS)]
    for one in workers:
        one.wait_for("own 3")
    killed = workers.pop(2)
    killed.child.send_signal(signal.SIGKILL)
    killed.child.wait()
    # The timeout of an averaging, 120 s, is beyond the patience.
    for one in workers:
        one.wait_for("own 50")
    workers.append(start(2, "averaging_worker.py", ENDLESS, 10**6))
    workers[-1].wait_for("own 5")
    daemon.syncctl("job", "stop", "averaged")
    found = [results(one) for one in workers]
    assert len(in_common(found)) >= 4
    for one in found:
        assert all(abs(value) < 1000 for value in one.values()), "a random model"


@pytest.mark.parametrize("where", ["making 0", "making 1", "averaging 0", "averaging 1"])
def test_another_is_killed_in_the_first_view_after_a_loss(daemon, start, where, tmp_path):
    once = tmp_path / "once"
    arguments = ("averaging_worker.py", ENDLESS, 0, -1, where, once)
    workers = [start(rank, *arguments) for rank in range(WORKERS)]
    for one in workers:
        one.wait_for("own 3")
    once.touch()
    workers.pop(3).child.send_signal(signal.SIGKILL)
    second = workers.pop(int(where.split()[1]))
    for one in workers:
        one.wait_for("own 50")
    assert second.child.wait() == -signal.SIGKILL
    daemon.syncctl("job", "stop", "averaged")
    assert len(in_common([results(one) for one in workers])) >= 4


def test_an_exception_in_one_worker_is_its_own(daemon, start):
    workers = [
        start(rank, "averaging_worker.py", 30, 0, 10 if rank == 1 else -1, world=3)
        for rank in range(3)
    ]
    code, _, err = workers[1].finish()
    assert code == 1 and "ValueError: as the test wants it" in err
    found = [results(workers[rank]) for rank in (0, 2)]
    assert 30 in in_common(found)


def test_the_example_learns(start):
    workers = [start(rank, EXAMPLE) for rank in range(WORKERS)]
    for rank, one in enumerate(workers):
        code, out, err = one.finish()
        assert code == 0, out + err
        assert f"worker {rank}: 40 averagings" in out
