"""connect("auto") in a process of its own, which then says what was chosen.

    auto_worker.py [--local ADDRESS] [--idle S] [--torch] [ITERATIONS]

It prints "chosen ADDRESS HOW", and after its iterations under bsp "done"; then it waits to be killed.
"""

import argparse
import logging
import os
import signal

import syncd
from syncd import _auto

parser = argparse.ArgumentParser()
parser.add_argument("--local", default="")
parser.add_argument("--idle", type=int, default=30)
parser.add_argument("--torch", action="store_true")
parser.add_argument("iterations", type=int, nargs="?", default=0)
given = parser.parse_args()

# A daemon at this machine's default addresses is not the test's.
_auto.local_daemons = lambda: iter([given.local] if given.local else [])
_auto.IDLE_S = given.idle


class Tell(logging.Handler):
    def emit(self, record):
        print("said", record.getMessage(), flush=True)
        if len(record.args) == 3:
            print("chosen", *record.args[1:], flush=True)


logging.getLogger("syncd").addHandler(Tell())
logging.getLogger("syncd").setLevel(logging.INFO)

with syncd.connect("auto", connect_timeout=60) as client:
    if given.torch:
        import torch
        import torch.distributed as dist

        dist.init_process_group("gloo")
        total = torch.tensor([float(dist.get_rank() + 1)])
        dist.all_reduce(total)
        print(f"sum {total.item():g}", flush=True)
    if given.iterations:
        with client.join("auto", "bsp", rank=int(os.environ.get("RANK", "0"))) as worker:
            for step in worker.steps(given.iterations):
                worker.push()
    print("done", flush=True)
    signal.pause()
