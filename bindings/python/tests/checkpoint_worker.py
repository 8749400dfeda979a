"""A worker that saves when it is told, without PyTorch: checkpoint_worker.py DIRECTORY SHARDED"""

import json
import sys
import time

import syncd
from syncd.checkpoint import Saver, on_sigterm


def write(state, path):
    with open(path, "w") as file:
        json.dump(state, file)


def read(path):
    with open(path) as file:
        return json.load(file)


with syncd.connect() as client, client.join("saved", "bsp", checkpoints=True) as worker:
    on_sigterm(worker)
    now = {"iteration": 0, "rank": worker.rank}
    saver = Saver(
        worker,
        sys.argv[1],
        lambda: now,
        sharded=sys.argv[2] == "sharded",
        save_to=write,
        load_from=read,
    )
    found = saver.load()
    print("loaded", found.iteration if found else None, found.state if found else None, flush=True)
    for step in worker:
        now["iteration"] = step.iteration
        saver.save(step)
        if step.iteration == 3:
            print("trains", flush=True)
        time.sleep(0.002)
        worker.push()
