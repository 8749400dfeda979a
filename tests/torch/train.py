"""A plain DDP script, as anybody has it: it knows nothing of syncd. Each event is a line in a file.

usage: train.py EVENTS ITERATIONS PAUSE_S [crash=RANK@ITERATION] [late=RANK@SECONDS] [until=FILE]

crash: in the first start only, after this iteration, or at its "end"; late: ends so much later than the others;
until: ends after 60 iterations or more, once there is this file.
"""

import os
import sys
import time

from events import say

EVENTS, ITERATIONS, PAUSE_S = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
OTHER = dict(word.split("=") for word in sys.argv[4:])
say("start")  # its first instruction

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
truth = torch.arange(8.0)
rank, world = dist.get_rank(), dist.get_world_size()
say("together")
torch.manual_seed(rank)
crash_rank, _, crash_at = OTHER.get("crash", "-1@0").partition("@")


def crash_if(at):
    if rank == int(crash_rank) and at == crash_at and not os.path.exists(EVENTS + ".crashed"):
        open(EVENTS + ".crashed", "w").close()
        say("crash")
        os._exit(3)


def told():
    """Of rank 0, as all must end in the same iteration."""
    flag = torch.tensor(float(os.path.exists(OTHER["until"])))
    dist.broadcast(flag, 0)
    return bool(flag)


for iteration in range(ITERATIONS):
    inputs = torch.randn(32, 8)
    loss = ((model(inputs).squeeze(1) - inputs @ truth) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    crash_if(str(iteration))
    if iteration == 0:
        say("trains")
    if "until" in OTHER and iteration >= 60 and told():
        break
    time.sleep(PAUSE_S)
late_rank, _, late_s = OTHER.get("late", "-1@0").partition("@")
if rank == int(late_rank):
    say("late")
    time.sleep(float(late_s))
crash_if("end")
say("done", loss=f"{loss.item():.6f}")
dist.destroy_process_group()
