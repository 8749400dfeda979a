"""A rank of a DDP training under observation: RANK SIZE HANG_AFTER GUILTY FAULT ITERATIONS.

The guilty rank does FAULT in iteration 5: loop (endless), gil (holds the interpreter's lock), lock,
collective (one that the others do not call), stop (itself, by SIGSTOP), kill. Each rank prints what it
is told of a hang. FAULT none: it trains, for ITERATIONS, with and without the hook, and prints the
seconds of both."""

import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

import syncd.torch
from faults import misbehave

rank, size, hang_after = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
guilty, fault, iterations = int(sys.argv[4]), sys.argv[5], int(sys.argv[6])
torch.set_num_threads(1)
dist.init_process_group("gloo", rank=rank, world_size=size)


def train(model, count):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    torch.manual_seed(rank)
    inputs, labels = torch.randn(64, width), torch.randn(64, 10)
    start = time.monotonic()
    for iteration in range(count):
        optimizer.zero_grad()
        if rank == guilty and iteration == 5:
            print("hangs at", time.time(), flush=True)
            misbehave(fault, lambda: dist.all_reduce(torch.ones(1), group=alone))
        torch.nn.functional.mse_loss(model(inputs), labels).backward()
        optimizer.step()
    return time.monotonic() - start


width = 64 if fault != "none" else 1024
alone = dist.new_group(list(range(size)))
net = torch.nn.Sequential(
    torch.nn.Linear(width, width), torch.nn.ReLU(), torch.nn.Linear(width, 10)
)
if fault == "none":
    guilty = -1
    plain, watched = DDP(net), DDP(net)
    syncd.torch.ddp(watched, job="ddp", hang_after=hang_after)
    train(plain, 3), train(watched, 3)
    for _ in range(int(sys.argv[7])):
        print("seconds", train(plain, iterations), train(watched, iterations), flush=True)
else:

    def heard(event):
        print(f"told at {time.time()} of {event.rank}: {event.text}", flush=True)

    train(syncd.torch.ddp(DDP(net), job="ddp", hang_after=hang_after, on_hang=heard), iterations)
