"""Trainings by syncd.torch whose cluster loses its leader again and again."""

import sys
import time

import pytest
from support import PATIENCE_S, ROOT, Cluster, Process, environment_of_torch, wait_until

pytest.importorskip("torch")

WORLD = 3
KILLS = 3
ITERATIONS = 600
FORMS = ["bsp", "elastic_bsp:8", "ssp:3", "asp", "hop:ring,backup=1,max_ig=4", "notify_ack:ring"]


@pytest.fixture
def cluster(tmp_path):
    made = Cluster(tmp_path)
    yield made
    made.stop()


def start_worker(cluster, rank, policy):
    argv = [sys.executable, str(ROOT / "tests/torch/steps_worker.py"), cluster.address()]
    argv += [str(rank), str(WORLD), policy, str(ITERATIONS)]
    return Process(argv, cluster.directory / f"worker{rank}", environment_of_torch())


@pytest.mark.parametrize("policy", FORMS)
def test_leaders_die_while_it_trains(cluster, policy):
    workers = [start_worker(cluster, rank, policy) for rank in range(WORLD)]

    def logs():
        return "".join(f"\n== {one.log_file.name}\n{one.log()[-3000:]}" for one in workers)

    def steps():
        for one in workers:
            assert one.is_up() or one.child.returncode == 0, logs()
        return [one.log().count("step ") for one in workers]

    try:
        wait_until(lambda: min(steps()) > 20, "all train")
        for _ in range(KILLS):
            leader = cluster.leader()
            before = steps()
            killed = time.monotonic()
            leader.kill()
            wait_until(lambda: all(a > b + 20 for a, b in zip(steps(), before)), "all go on")
            print(f"{policy}: all have gone on after {time.monotonic() - killed:.1f} s")
            leader.start()
        assert [one.child.wait(PATIENCE_S) for one in workers] == WORLD * [0], logs()
    finally:
        for one in workers:
            one.kill()
    for one in workers:
        assert float(one.log().rpartition("done ")[2]) < 0.1, logs()
