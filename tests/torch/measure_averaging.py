"""Measures the form "averaging" with 4 processes over gloo on this machine.

    measure_averaging.py [overhead] [kill] [outer]      all by default

overhead  the time of 10 steps, with an averaging after each 10 and without any
kill      from SIGKILL of one worker to the next average of the slowest of the others
outer     DiLoCo's outer step on 25 million parameters, over a bare all-reduce of as many bytes

Needs SYNCD_TEST_BIN_DIR, SYNCD_LIBRARY and PYTHONPATH=bindings/python/src.
"""

import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import torch

import syncd.torch as st
from support import Daemon, wait_until

WORKERS = 4


def timed(job):
    """Seconds of each averaging of this worker."""
    times, average = [], job._average

    def measured(*arguments):
        begun, computed = time.monotonic(), time.process_time()
        average(*arguments)
        times.append((time.monotonic() - begun, time.process_time() - computed))

    job._average = measured
    return times


def train(job, model, optimizer, batches, **until):
    for _, (x,) in job.steps(batches, **until):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        job.push()
        yield


def small():
    model = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(4)])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    return model, optimizer, [(torch.randn(16, 256),) for _ in range(8)]


def overhead():
    model, optimizer, batches = small()
    tens, plain, began = [], [], 0.0
    with st.run("bsp:10", model, optimizer=optimizer, job="overhead") as job:
        times = timed(job)
        for at, _ in enumerate(train(job, model, optimizer, batches, iterations=301)):
            if at % 10 != 9:
                continue
            # The next ten without averaging, while the others do the same.
            now = time.monotonic()
            tens.append(now - began)
            for (x,) in batches + batches[:2]:
                optimizer.zero_grad()
                model(x).square().mean().backward()
                optimizer.step()
            began = time.monotonic()
            plain.append(began - now)
    return {
        "with": statistics.median(tens[2:]),
        "plain": statistics.median(plain[2:]),
        "averaging": statistics.median(wall for wall, _ in times[2:]),
    }


def kill():
    model, optimizer, batches = small()
    with st.run("elastic_bsp:8", model, optimizer=optimizer, job="kill") as job:
        for _ in train(job, model, optimizer, batches, averagings=60):
            if job._trained_steps == 1:
                print(job.averagings, time.monotonic(), flush=True)
    return {}


def outer():
    model = torch.nn.Sequential(*[torch.nn.Linear(1250, 1250, bias=False) for _ in range(16)])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def make(params):
        return torch.optim.SGD(params, lr=0.7, momentum=0.9, nesterov=True)

    flat = torch.zeros(sum(one.numel() for one in model.parameters()))
    bare = []
    with st.run("bsp", model, optimizer=optimizer, job="outer", outer=make) as job:
        times = timed(job)
        for _ in train(job, model, optimizer, [(torch.randn(4, 1250),)], averagings=9):
            group = job._group._group
            group.barrier().wait()
            begun, computed = time.monotonic(), time.process_time()
            group.allreduce([flat]).wait()
            bare.append((time.monotonic() - begun, time.process_time() - computed))
            group.barrier().wait()
    result = {}
    for name, pairs in [("outer", times), ("bare", bare)]:
        result[name] = statistics.median(wall for wall, _ in pairs[2:])
        result[f"{name} cpu"] = statistics.median(cpu for _, cpu in pairs[2:])
    return result


def start(daemon, directory, what):
    processes = []
    for rank in range(WORKERS):
        env = {
            **os.environ,
            "SYNCD_ADDR": daemon.address,
            "RANK": str(rank),
            "WORLD_SIZE": str(WORKERS),
            "GLOO_SOCKET_IFNAME": "lo",
            "OMP_NUM_THREADS": "1",
        }
        with open(directory / f"{what}-{rank}", "w") as out:
            argv = [sys.executable, __file__, "--worker", what]
            processes.append(subprocess.Popen(argv, env=env, stdout=out))
    return processes


def said(directory, what, ranks=range(WORKERS)):
    return [(directory / f"{what}-{rank}").read_text().splitlines() for rank in ranks]


def main(wanted):
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        daemon = Daemon(directory)
        for what in wanted:
            processes = start(daemon, directory, what)
            if what == "kill":
                wait_until(
                    lambda: all(len(one) > 20 for one in said(directory, what)),
                    "they train",
                )
                processes[2].send_signal(signal.SIGKILL)
                killed = time.monotonic()
            assert [one.wait() for one in processes if one.poll() != -9][-1] == 0
            if what == "kill":
                rows = [
                    [line.split() for line in one[:-1]] for one in said(directory, what, (0, 1, 3))
                ]
                # The next one may still be whole, with the killed one's last part.
                gaps = [
                    max(float(b[1]) - float(a[1]) for a, b in zip(one, one[1:])) for one in rows
                ]
                usual = statistics.median(
                    float(b[1]) - float(a[1]) for a, b in zip(rows[0], rows[0][1:])
                )
                first = max(
                    min(float(row[1]) for row in one if float(row[1]) > killed) for one in rows
                )
                print(
                    f"kill: the next average after {first - killed:.2f} s, the longest gap between two "
                    f"averages is {max(gaps):.2f} s, usually {usual:.3f} s"
                )
                continue
            results = [json.loads(one[-1]) for one in said(directory, what)]
            worst = {key: max(one[key] for one in results) for key in results[0]}
            if what == "overhead":
                print(
                    f"overhead: 10 steps take {worst['with'] * 1e3:.1f} ms with an averaging, "
                    f"{worst['plain'] * 1e3:.1f} ms without: {worst['with'] / worst['plain']:.3f}; the "
                    f"averaging itself {worst['averaging'] * 1e3:.2f} ms"
                )
            else:
                print(
                    f"outer: {worst['outer'] * 1e3:.0f} ms, the bare all-reduce "
                    f"{worst['bare'] * 1e3:.0f} ms: {worst['outer'] / worst['bare']:.2f}; in "
                    f"the time of processors {worst['outer cpu'] * 1e3:.0f} ms and "
                    f"{worst['bare cpu'] * 1e3:.0f} ms: {worst['outer cpu'] / worst['bare cpu']:.2f}"
                )
        daemon.kill()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        torch.set_num_threads(1)
        torch.manual_seed(0)
        print(json.dumps(globals()[sys.argv[2]]()), flush=True)
    else:
        main(sys.argv[1:] or ["overhead", "kill", "outer"])
