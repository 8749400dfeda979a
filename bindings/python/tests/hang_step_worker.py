"""A rank of a training under observation, without torch: RANK SIZE HANG_AFTER GUILTY FAULT FOLDER.

Its exchange waits until all ranks have left a file for the iteration. In iteration 5 the guilty rank
does FAULT: loop, gil, lock, collective, stop or kill. Each rank prints what it is told of a hang."""

import pathlib
import sys
import time

import syncd
from faults import misbehave

rank, size, hang_after = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
guilty, fault, folder = int(sys.argv[4]), sys.argv[5], pathlib.Path(sys.argv[6])


def meet(what):
    (folder / f"{what}.{rank}").touch()
    while not all((folder / f"{what}.{one}").exists() for one in range(size)):
        time.sleep(0.002)


def hear(event):
    print(f"told at {time.time()} of {event.rank}: {event.text}", flush=True)


obs = syncd.observe(
    "steps", hang_after=hang_after, on_hang=hear, rank=rank, world_size=size
)
meet("start")
for iteration in range(100_000):
    with obs.step():
        if rank == guilty and iteration == 5:
            print(f"hangs at {time.time()}", flush=True)
            misbehave(fault, lambda: meet("alone"))
        obs.computed()
        meet(iteration)
