"""Trainings by syncd.torch under every policy, whose daemon is killed and started again on its store."""

import os
import subprocess
import sys

import pytest
from support import HERE, ROOT, wait_until

WORLD = 3
KILLS = 2
ITERATIONS = 200
POLICIES = [
    "bsp", "elastic_bsp:8", "ssp:3", "dssp:2-6", "asp", "naive_wait:20+asp", "specsync:fixed,20,0.5+asp",
    "hop:ring,backup=1,max_ig=4", "notify_ack:ring",
]  # fmt: skip


SMALL = ["elastic_bsp:8", "ssp:3", "hop:ring,backup=1,max_ig=4"]  # one of each form


@pytest.mark.parametrize(
    "policy", [pytest.param(one, marks=[pytest.mark.small] if one in SMALL else []) for one in POLICIES]
)
def test_nobody_notices(daemon, tmp_path, policy):
    environment = {
        **os.environ, "PYTHONPATH": str(ROOT / "bindings/python/src"), "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1",
        "XDG_RUNTIME_DIR": str(tmp_path),
    }  # fmt: skip
    logs = [tmp_path / f"worker{rank}" for rank in range(WORLD)]
    workers = []
    for rank, log in enumerate(logs):
        argv = [sys.executable, str(HERE / "steps_worker.py"), daemon.address, str(rank), str(WORLD), policy]
        with open(log, "w") as out:
            workers.append(
                subprocess.Popen([*argv, str(ITERATIONS)], env=environment, stdout=out, stderr=out)
            )

    def said():
        return "".join(f"\n== worker {rank}\n{log.read_text()[-3000:]}" for rank, log in enumerate(logs))

    def steps():
        for one in workers:
            assert one.poll() in (None, 0), said()
        return [log.read_text().count("step ") for log in logs]

    try:
        for _ in range(KILLS):
            before = steps()
            wait_until(lambda: all(a > b + 20 for a, b in zip(steps(), before)), "all train")
            daemon.kill()
            daemon.start()
        assert [one.wait(120) for one in workers] == WORLD * [0], said()
    finally:
        for one in workers:
            one.kill()
            one.wait()
    for log in logs:
        text = log.read_text()
        assert text.count("step ") == ITERATIONS and float(text.rpartition("done ")[2]) < 0.1, said()
