"""A worker of a group that may be started again: launch_worker.py ADDRESS RANK WORKERS ITERATIONS
[pause=SECONDS]

Prints "joined", "begun K" with "resumed" where the step says so, and "stopped"; with a pause in each
iteration it computes for so long."""

import sys
import time

import syncd

address, rank, workers, iterations = sys.argv[1:5]
pause = float(sys.argv[5].removeprefix("pause=")) if len(sys.argv) > 5 else 0
with syncd.connect(address) as client:
    with client.join(
        "job", "elastic_bsp:5", rank=int(rank), world_size=int(workers),
        name=f"w{rank}", host="h",
    ) as worker:
        print("joined", flush=True)
        for step in worker.steps(int(iterations)):
            print("begun", step.iteration, *["resumed"] * step.resumed, flush=True)
            time.sleep(pause)
            try:
                worker.push()
            except syncd.Stopped:
                break
        if step.iteration < int(iterations) - 1:
            print("stopped", flush=True)
