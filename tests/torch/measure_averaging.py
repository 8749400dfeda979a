"""Measures the form "averaging" with 4 processes over gloo on this machine.

    measure_averaging.py [overhead] [straggler] [kill] [outer]      all by default

overhead   the time of 10 steps: with an averaging after them under bsp:10, with torch's post-local SGD (period 10),
           and plain. The three take turns in each process; all processes enter each turn together
straggler  iterations per second of all workers together, worker 3 four times slower: elastic_bsp:40 over post-local
           SGD (period 10), and over workers that never wait. By speeds alone these do (3 * 4 + 1) / 4 = 3.25 times
           as many as workers that wait for the slowest
kill       from SIGKILL to the next average of the slowest of the others: of worker 2, and 9 s later of worker 0,
           which the others meet at
outer      DiLoCo's outer step on 25 million parameters (from the local parameters to the new ones: copies, weights,
           all-reduce, outer optimizer), over one bare all-reduce of as many bytes by the same group, and its parts

The daemon stores in the mode "fast", as one does that st.run() starts by itself. SYNCD_MEASURE_MODE=durable: each push
waits for the disk, and most of `overhead` is that. SYNCD_MEASURE_GLOO=1: without shared memory, as between machines.

Needs SYNCD_TEST_BIN_DIR, SYNCD_LIBRARY and PYTHONPATH=bindings/python/src.
"""

import itertools
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
import torch.distributed as dist
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.optim import PostLocalSGDOptimizer

import syncd.torch as st
from support import Daemon, free_port, wait_until

WORKERS = 4
SHARED = {"shared_memory": not os.environ.get("SYNCD_MEASURE_GLOO")}


def train(job, model, optimizer, batches, **until):
    for _, (x,) in job.steps(batches, **until):
        step(model, optimizer, x)
        job.push()
        yield


def step(model, optimizer, x):
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()


def small():
    model = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(4)])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    return model, optimizer, [(torch.randn(16, 256),) for _ in range(10)]


def post_local(optimizer):
    """An optimizer that averages after each ten steps."""
    averager = PeriodicModelAverager(period=10, warmup_steps=0)
    averager.step = 1
    return PostLocalSGDOptimizer(optimizer, averager)


def overhead():
    dist.init_process_group("gloo")
    model, optimizer, batches = small()
    local = post_local(optimizer)
    times = {"with": [], "local": [], "plain": []}

    def turn(what, stepped):
        dist.barrier()
        began = time.monotonic()
        for (x,) in batches:
            step(model, stepped, x)
        times[what].append(time.monotonic() - began)

    with st.run("bsp:10", model, optimizer=optimizer, job="overhead", **SHARED) as job:
        began = 0.0
        for at, _ in enumerate(train(job, model, optimizer, batches, iterations=401)):
            if at % 10 != 9:
                continue
            # The next turns without syncd, while the others have theirs.
            times["with"].append(time.monotonic() - began)
            turn("local", local)
            turn("plain", optimizer)
            dist.barrier()
            began = time.monotonic()
    return {what: statistics.median(found[2:]) for what, found in times.items()}


def straggler():
    dist.init_process_group("gloo")
    model, optimizer, batches = small()
    slowness = 4 if os.environ["RANK"] == "3" else 1

    def paced(stepped, x):
        """With a pause, so that the processors are not what all wait for."""
        began = time.monotonic()
        step(model, stepped, x)
        computed = time.monotonic() - began
        time.sleep(slowness * 0.02 + (slowness - 1) * computed)

    def rate(steps, stepped):
        dist.barrier()
        began = time.monotonic()
        for _, (x,) in zip(range(steps), itertools.cycle(batches)):
            paced(stepped, x)
        return steps / (time.monotonic() - began)

    result = {"free": rate(200 // slowness, optimizer), "local": rate(100, post_local(optimizer))}
    dist.barrier()
    with st.run("elastic_bsp:40", model, optimizer=optimizer, job="straggler", **SHARED) as job:
        began, steps = 0.0, 0
        for _, (x,) in job.steps(batches, averagings=20):
            if job.averagings > 0:  # the first plans know nothing
                began = began or time.monotonic()
                steps += 1
            paced(optimizer, x)
            job.push()
        result["elastic"] = steps / (time.monotonic() - began)
    dist.barrier()
    return result


def kill():
    model, optimizer, batches = small()
    with st.run("elastic_bsp:8", model, optimizer=optimizer, job="kill", **SHARED) as job:
        for _ in train(job, model, optimizer, batches, averagings=10**6):
            if job._trained_steps == 1:
                print(job.averagings, time.monotonic(), flush=True)
    return {}


def outer():
    model = torch.nn.Sequential(*[torch.nn.Linear(1250, 1250, bias=False) for _ in range(16)])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def make(params):
        return torch.optim.SGD(params, lr=0.7, momentum=0.9, nesterov=True)

    times = {}

    def timed(what, work, clock=time.process_time):
        def measured(*arguments):
            begun, computed = time.monotonic(), clock()
            result = work(*arguments)
            pair = (time.monotonic() - begun, clock() - computed)
            times.setdefault(what, []).append(pair)
            return result

        return measured

    flat = torch.zeros(sum(one.numel() for one in model.parameters()))
    with st.run("bsp", model, optimizer=optimizer, job="outer", outer=make, **SHARED) as job:
        average = timed("outer", job._average)

        def together(*arguments):
            if job._group is not None:
                job._group._group.barrier().wait()
            average(*arguments)

        job._average = together
        for _ in train(job, model, optimizer, [(torch.randn(4, 1250),)], averagings=12):
            group, staging = job._group._group, job._staging
            if "fill" not in times:
                staging.fill = timed("fill", staging.fill, time.thread_time)
                staging.apply = timed("apply", staging.apply, time.thread_time)
            group.barrier().wait()
            timed("bare", lambda: group.allreduce([flat]).wait())()
            group.barrier().wait()
    return {
        f"{what} {of}": statistics.median(pair[at] for pair in pairs[2:]) * (4 if what == "fill" else 1)
        for what, pairs in times.items()
        for at, of in enumerate(("wall", "cpu"))
    }


def start(daemon, directory, what):
    processes, port = [], free_port()
    for rank in range(WORKERS):
        env = {
            **os.environ,
            "SYNCD_ADDR": daemon.address,
            "RANK": str(rank),
            "WORLD_SIZE": str(WORKERS),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "GLOO_SOCKET_IFNAME": "lo",
            "OMP_NUM_THREADS": "1",
        }
        with open(directory / f"{what}-{rank}", "w") as out:
            argv = [sys.executable, __file__, "--worker", what]
            processes.append(subprocess.Popen(argv, env=env, stdout=out))
    return processes


def said(directory, what, ranks=range(WORKERS)):
    return [(directory / f"{what}-{rank}").read_text().splitlines() for rank in ranks]


def kill_two(processes, directory):
    """What is to be said."""
    wait_until(lambda: all(len(one) > 20 for one in said(directory, "kill")), "they train")
    living, killed = [0, 1, 2, 3], []
    for rank in (2, 0):
        living.remove(rank)
        processes[rank].kill()
        killed.append(time.monotonic())
        time.sleep(9)
    wait_until(
        lambda: all(float(one[-2].split()[1]) > killed[1] for one in said(directory, "kill", living)),
        "they go on",
    )
    time.sleep(1)
    for rank in living:
        processes[rank].kill()
    rows = [[float(line.split()[1]) for line in one[:-1]] for one in said(directory, "kill", living)]
    gaps = [[(b - a, a) for a, b in zip(one, one[1:])] for one in rows]
    usual = statistics.median(gap for gap, _ in gaps[0])
    # An average may still be whole with the killed one's last part: the longest gap since.
    longest = [max(gap for one in gaps for gap, at in one if abs(at - when) < 5) for when in killed]
    print(
        f"kill: without an average {longest[0]:.2f} s after the first, {longest[1]:.2f} s after the second; "
        f"usually {usual:.3f} s"
    )


def main(wanted):
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        daemon = Daemon(directory, os.environ.get("SYNCD_MEASURE_MODE", "fast"))
        for what in wanted:
            processes = start(daemon, directory, what)
            if what == "kill":
                kill_two(processes, directory)
                for one in processes:
                    one.wait()
                continue
            assert [one.wait() for one in processes] == [0] * WORKERS
            results = [json.loads(one[-1]) for one in said(directory, what)]
            worst = {key: max(one[key] for one in results) for key in results[0]}
            if what == "overhead":
                ours, theirs = (worst[one] - worst["plain"] for one in ("with", "local"))
                print(
                    f"overhead: 10 steps take {worst['plain'] * 1e3:.1f} ms, with an averaging "
                    f"{ours * 1e3:.2f} ms more, with post-local SGD's {theirs * 1e3:.2f} ms: {ours / theirs:.2f}"
                )
            elif what == "straggler":
                ours, theirs, free = (sum(one[key] for one in results) for key in ("elastic", "local", "free"))
                print(
                    f"straggler: {ours:.0f} iterations/s under elastic_bsp:40, {theirs:.0f} by post-local SGD: "
                    f"{ours / theirs:.2f}; {free:.0f} without waiting: {ours / free:.2f}"
                )
            else:
                for of, sentence in [("wall", "outer"), ("cpu", "  in processor time")]:
                    ms = {part: worst[f"{part} {of}"] * 1e3 for part in ("outer", "bare", "fill", "apply")}
                    print(
                        f"{sentence}: {ms['outer']:.0f} ms, the bare all-reduce {ms['bare']:.0f} ms: "
                        f"{ms['outer'] / ms['bare']:.2f}; filling {ms['fill']:.0f} ms, the outer optimizer "
                        f"{ms['apply']:.0f} ms"
                    )
        daemon.kill()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        torch.set_num_threads(1)
        torch.manual_seed(0)
        print(json.dumps(globals()[sys.argv[2]]()), flush=True)
    else:
        main(sys.argv[1:] or ["overhead", "straggler", "kill", "outer"])
