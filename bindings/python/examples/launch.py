"""A worker that may be killed and started again with its whole group, and goes on where it was.

    python3 launch.py RANK WORKERS ITERATIONS CHECKPOINT      for each rank, on any machines

Whoever starts the group sets SYNCD_LAUNCH=NAME/NUMBER, with a higher number each time (torchrun and
Slurm say enough by themselves). The "model" is a number.
"""

import json
import logging
import os
import sys

import syncd

rank, workers, iterations = map(int, sys.argv[1:4])
path = sys.argv[4]  # the same for all: they must go on with the same model
logging.basicConfig(level=logging.INFO, format="%(message)s")  # what it waits for, every 10 s
model, at = 0.0, None
if os.path.exists(path):
    with open(path) as file:
        at, model = json.load(file)

with syncd.connect() as client:
    with client.join("launch", "bsp", rank=rank, world_size=workers, resume_at=at) as worker:
        for step in worker.steps(iterations):
            if step.resumed:
                print(f"goes on at iteration {step.iteration} with {model}")
            model += 1.0  # compute
            worker.push()
            if rank == 0:  # where to go on, and with which model
                with open(path + ".new", "w") as file:
                    json.dump([step.iteration + 1, model], file)
                os.replace(path + ".new", path)
        worker.leave(kind="finished", reason=f"{iterations} iterations")
print(f"finished with {model}")
