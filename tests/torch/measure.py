"""Seconds from the SIGKILL of an agent and its worker to the new workers' first instruction on all
survivors, and from the last agent's start to the first instruction of all: syncd and torch's own c10d in
one run, with the same monitor interval. Then members without torch: from the last one's begin until each
has its round.

usage: tests/torch/run --measure [ROUNDS=3] [AGENTS=4] [CROWD=1000]
"""

import pathlib
import select
import sys
import tempfile
import time

from support import ROOT, Daemon, Run

sys.path.insert(0, str(ROOT / "bindings/python/src"))
import syncd

rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
agents = int(sys.argv[2]) if len(sys.argv) > 2 else 4
members = int(sys.argv[3]) if len(sys.argv) > 3 else 1000


def once(backend, conf=""):
    directory = pathlib.Path(tempfile.mkdtemp())
    daemon = Daemon(directory)
    run = Run(directory, daemon, f"2:{agents}", backend=backend, conf=conf)
    run.train(100_000)
    try:
        # The one that holds c10d's store is not the one that is killed.
        run.start("a0")
        if backend == "c10d":
            time.sleep(2)
        for number in range(1, agents):
            run.start(f"a{number}")
        last = time.time()
        first = run.wait_for(agents, "start")
        run.wait_for(agents, "trains")
        killed_at = time.time()
        run.agents[1].kill_all()
        again = run.wait_for(agents - 1, "start", since=killed_at)
        latest = [max(float(one["t"]) for one in events) for events in (first, again)]
        return latest[0] - last, latest[1] - killed_at
    finally:
        run.end()
        daemon.kill()


cases = [("syncd", ""), ("c10d", ""), ("c10d", "last_call_timeout=3")]
print("backend  --rdzv-conf             start to first instruction, s   kill to new workers, s")
for number in range(rounds):
    for backend, conf in cases:
        started, formed = once(backend, conf)
        print(f"{backend:8} {conf or '-':23} {started:12.1f} {formed:32.1f}", flush=True)


def crowd(count, formed):
    """Seconds from the last begin until each has its round; how many rounds."""
    daemon = Daemon(pathlib.Path(tempfile.mkdtemp()))
    try:
        clients = [syncd.connect(daemon.address) for _ in range(20)]
        workers = [
            clients[i % 20].join("crowd", f"gather:{count}", name=f"agent-{i:05}", rank=i)
            for i in range(count)
        ]
        by_descriptor = {worker.fileno(): worker for worker in workers}
        poll = select.epoll()
        for descriptor in by_descriptor:
            poll.register(descriptor, select.EPOLLIN)
        taken = []
        for _ in range(formed):
            for worker in workers:
                worker.arrive(b"10.0.0.1:5000")
            last = time.monotonic()
            left = count
            while left:
                for descriptor, _ in poll.poll():
                    step = by_descriptor[descriptor].poll()
                    if step is not None:
                        assert step.view_size == count
                        taken.append(time.monotonic() - last)
                        left -= 1
        return sorted(taken)
    finally:
        daemon.kill()


if members:
    taken = crowd(members, 10)
    p50, p99 = (taken[int(len(taken) * part)] for part in (0.5, 0.99))
    print(f"{members} members without torch, 10 rounds: p50 {p50:.3f} s, p99 {p99:.3f} s")
