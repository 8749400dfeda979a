"""How fast hop and notify_ack are in syncd.torch, beside what `syncctl simulate` says for the same times.

    python3 measure_neighbours.py [--seconds 30] [--base-ms 50] [--parameters 100000] [--tcp] [POLICY...]

Four workers on one machine, of which worker 3 takes four times as long; an iteration's time is slept, so
that the exchange is what is measured. Needs SYNCD_TEST_BIN_DIR and SYNCD_LIBRARY. Exits with 1 if a policy
reaches less than 90 % of the simulation.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
WORKERS, SLOW, FACTOR = 4, 3, 4
POLICIES = [
    "hop:ring_based,backup=1,max_ig=4",
    "hop:ring_based,backup=1,max_ig=4,skip=10,skip_trigger=2",
    "notify_ack:ring_based",
]


def work(arguments):
    import torch

    import syncd.torch as st

    torch.set_num_threads(1)
    model = torch.nn.Linear(arguments.parameters // 100, 100, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.zeros(1, model.in_features)
    pause = arguments.base_ms / 1000 * (FACTOR if int(os.environ["RANK"]) == SLOW else 1)
    options = {"shared_memory": not arguments.tcp, "progress": False}
    with st.run(arguments.policies[0], model, optimizer=optimizer, job="measure", **options) as job:
        begun = None
        done = 0
        for _ in job.steps(iterations=10**9):
            begun = begun or time.monotonic()
            if time.monotonic() - begun >= arguments.seconds:
                break
            end = time.monotonic() + pause
            optimizer.zero_grad()
            loss = model(x).sum()
            loss.backward()
            time.sleep(max(0.0, end - time.monotonic()))
            job.mix()
            done += 1
        print(json.dumps({"done": done, "mixed": job.mixed, "missing": job.missing}))


def measured(arguments, policy, address):
    argv = [sys.executable, __file__, "--worker", policy, "--seconds", str(arguments.seconds)]
    argv += ["--base-ms", str(arguments.base_ms), "--parameters", str(arguments.parameters)]
    argv += ["--tcp"] if arguments.tcp else []
    environment = {**os.environ, "SYNCD_ADDR": address, "WORLD_SIZE": str(WORKERS), "OMP_NUM_THREADS": "1"}
    children = [
        subprocess.Popen(argv, env={**environment, "RANK": str(rank)}, stdout=subprocess.PIPE, text=True)
        for rank in range(WORKERS)
    ]
    said = [json.loads(child.communicate()[0]) for child in children]
    return sum(one["done"] for one in said) / arguments.seconds / WORKERS, said


def simulated(arguments, policy):
    argv = [os.environ["SYNCD_TEST_BIN_DIR"] + "/syncctl", "simulate", "--json", "--policy", policy]
    argv += ["--workers", str(WORKERS), "--iteration-time", f"constant:{arguments.base_ms}"]
    argv += ["--slowdown", f"fixed:{SLOW}={FACTOR}x", "--duration-s", str(arguments.seconds)]
    found = json.loads(subprocess.run(argv, check=True, capture_output=True).stdout)
    return found["policies"][0]["iterations_per_s_per_worker"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("policies", nargs="*", default=POLICIES)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--base-ms", type=float, default=50)
    parser.add_argument("--parameters", type=int, default=100_000)
    parser.add_argument("--tcp", action="store_true")
    parser.add_argument("--worker", action="store_true")
    arguments = parser.parse_args()
    if arguments.worker:
        return work(arguments)
    slow = False
    for policy in arguments.policies:
        with tempfile.TemporaryDirectory() as directory:
            ready = pathlib.Path(directory, "ready")
            argv = [os.environ["SYNCD_TEST_BIN_DIR"] + "/syncd", "--store", "memory", "--tcp", "off"]
            argv += ["--unix", f"{directory}/s", "--ready-file", str(ready)]
            daemon = subprocess.Popen(argv, stderr=subprocess.DEVNULL)
            try:
                while not (ready.exists() and ready.stat().st_size):
                    time.sleep(0.01)
                rate, said = measured(arguments, policy, f"unix:{directory}/s")
            finally:
                daemon.terminate()
                daemon.wait()
        wanted = simulated(arguments, policy)
        slow |= rate < 0.9 * wanted
        print(
            f"{policy}: {rate:.2f} iterations/s and worker, simulated {wanted:.2f}: "
            f"{rate / wanted:.1%}; {sum(one['mixed'] for one in said)} updates mixed, "
            f"{sum(one['missing'] for one in said)} lost",
            flush=True,
        )
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
