"""A worker process: worker_process.py ADDRESS POLICY RANK WORKERS ITERATIONS [hold=ITERATION]

Prints "begun K STALENESS" and "pushed K", and "stopped" where the job ended before the push; with
hold it stays in that iteration for ever."""

import signal
import sys

import syncd

address, policy, rank, workers, iterations = sys.argv[1:6]
hold = int(sys.argv[6].removeprefix("hold=")) if len(sys.argv) > 6 else None
with syncd.connect(address) as client:
    with client.join("job", policy, rank=int(rank), world_size=int(workers)) as worker:
        for step in worker.steps(int(iterations)):
            print("begun", step.iteration, step.staleness)
            if step.iteration == hold:
                signal.pause()
            try:
                worker.push(loss=1.0 / (1 + step.iteration), samples=32, bytes=100)
            except syncd.Stopped:
                print("stopped")
                break
            print("pushed", step.iteration)
