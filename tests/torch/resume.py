"""A script that goes on from its job's latest complete checkpoint. Each event is a line in a file.

usage: resume.py EVENTS ITERATIONS DIRECTORY STAGGER_S CRASHES [dcp|background]

Each process waits at random, up to STAGGER_S, before it joins. Rank 0 asks for a checkpoint in its
10th iteration and crashes some iterations after it is complete, in so many starts. With dcp all save by
torch.distributed.checkpoint, each with a tensor of its own; with background they do so in a thread.
"""

import os
import random
import sys
import time

from events import say

ITERATIONS, DIRECTORY = int(sys.argv[2]), sys.argv[3]
STAGGER_S, CRASHES = float(sys.argv[4]), int(sys.argv[5])

say("start")
import torch

import syncd
from syncd.checkpoint import DcpSaver, Saver

FORM = sys.argv[6] if len(sys.argv) > 6 else ""
start = int(os.environ["SYNCD_LAUNCH"].rpartition("/")[2]) - 1
chance = random.Random(f"{start} {os.environ['RANK']}")
time.sleep(chance.uniform(0, STAGGER_S))
torch.manual_seed(0)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
truth = torch.arange(8.0)
at = 0
with syncd.connect() as client, client.join("resume", "bsp", checkpoints=True) as worker:
    if FORM:
        torch.distributed.init_process_group("gloo")
        own = torch.full((3,), -1.0)
        saver = DcpSaver(
            worker,
            DIRECTORY,
            lambda: {"m": model.state_dict(), "at": at, f"of{worker.rank}": own},
            background=FORM == "background",
        )
    else:
        saver = Saver(
            worker, DIRECTORY, lambda: {"m": model.state_dict(), "o": optimizer.state_dict(), "at": at}
        )
    found = saver.load()
    if found:
        model.load_state_dict(found.state["m"])
        at = found.state["at"]
        if FORM:
            assert own.tolist() == 3 * [worker.rank], "its own part"
        else:
            optimizer.load_state_dict(found.state["o"])
    if FORM:
        own.fill_(worker.rank)
    say("loaded", at=at, members=worker.world_size)
    crashes = start < CRASHES and worker.rank == 0
    asked = 0
    for step in worker:
        if saver.save(step):
            say("saved", at=at)
        if at == ITERATIONS:
            break
        inputs = torch.randn(16, 8, generator=torch.Generator().manual_seed(at))
        loss = ((model(inputs).squeeze(1) - inputs @ truth) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        worker.push()
        at += 1
        if crashes and step.iteration == 10:
            asked = worker.request_checkpoint("a test's")
        if asked and client.latest_checkpoint("resume").closed >= asked:
            say("crash", at=at)
            os._exit(3)
    if FORM:
        saver.wait()
        torch.distributed.destroy_process_group()
say("done", at=at, loss=f"{loss.item():.6f}")
