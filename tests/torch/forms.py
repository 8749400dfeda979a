"""A training by syncd.torch that goes on from its job's latest complete checkpoint. It writes each event as a
line into a file.

usage: forms.py EVENTS POLICY ITERATIONS DIRECTORY STAGGER_S CRASHES

Each process waits at random, up to STAGGER_S, before it joins. Rank 0 asks for a checkpoint in its 10th
iteration and crashes once it is complete, in so many starts.
"""

import os
import random
import sys
import time

from events import say

POLICY, ITERATIONS, DIRECTORY = sys.argv[2], int(sys.argv[3]), sys.argv[4]
STAGGER_S, CRASHES = float(sys.argv[5]), int(sys.argv[6])

say("start")
import torch

import syncd
import syncd.torch as st

start = int(os.environ["SYNCD_LAUNCH"].rpartition("/")[2]) - 1
rank = int(os.environ["RANK"])
time.sleep(random.Random(f"{start} {rank}").uniform(0, STAGGER_S))
torch.manual_seed(start * 100 + rank)  # a model that went on from no checkpoint is another one each time
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
truth = torch.arange(8.0)
data = [(inputs, inputs @ truth) for inputs in torch.randn(20, 16, 8)]


def loss_of(inputs, wanted):
    return ((model(inputs).squeeze(1) - wanted) ** 2).mean()


def train(job, loss):
    if POLICY.startswith("hop"):
        job.mix(loss)
        return
    if job.form == "averaging":
        optimizer.step()
    job.push(loss)


with syncd.connect() as client:
    with st.run(POLICY, model, optimizer=optimizer, job="forms", checkpoint=DIRECTORY) as job:
        crashes = start < CRASHES and rank == 0
        asked = first = 0
        for step, (inputs, wanted) in job.steps(data, iterations=ITERATIONS):
            optimizer.zero_grad()
            loss = loss_of(inputs, wanted)
            if first == 0:
                first = int(step) + 1
                say("begins", at=int(step), resumed=job.resumed, loss=loss.item())
            loss.backward()
            train(job, loss)
            time.sleep(0.01)
            if crashes and int(step) == first + 10:
                asked = job.worker.request_checkpoint("a test's")
            if asked and (latest := client.latest_checkpoint("forms")).closed >= asked:
                say("crash", at=int(step), saved=latest.iteration)
                os._exit(3)
fresh = torch.randn(64, 8)
say("done", loss=f"{loss_of(fresh, fresh @ truth).item():.6f}")
