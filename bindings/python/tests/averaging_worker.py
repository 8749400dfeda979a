"""A worker that averages until it has AVERAGINGS, or the job is stopped.

    averaging_worker.py AVERAGINGS [MODEL'S VALUE [FAIL AT]]

Says "own N" after the Nth average of this process; at the end "N VALUE" for each one of the training, where
VALUE is what the parameters were.
"""

import os
import sys
import time

import torch

import syncd.torch as st

averagings = int(sys.argv[1])
value = float(sys.argv[2]) if len(sys.argv) > 2 else 0.0
fail_at = int(sys.argv[3]) if len(sys.argv) > 3 else None

torch.set_num_threads(1)
rank = int(os.environ["RANK"])
torch.manual_seed(rank)
model = torch.nn.Linear(64, 64)
with torch.no_grad():
    model.weight.fill_(value)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
batches = [(torch.randn(8, 64),) for _ in range(16)]
seen, said = [], 0

with st.run("elastic_bsp:8", model, optimizer=optimizer, job="averaged", weight="samples") as job:
    for step, (x,) in job.steps(batches, averagings=averagings):
        if job.averagings != said:
            said = job.averagings
            seen.append((said, model.weight.sum().item()))
            print(f"own {len(seen)}", flush=True)
        if said == fail_at:
            raise ValueError("as the test wants it")
        optimizer.zero_grad()
        (model(x) - x).square().mean().backward()
        optimizer.step()
        time.sleep(0.002)
        job.push()

if job.averagings != said:
    seen.append((job.averagings, model.weight.sum().item()))
for number, result in seen:
    print(number, result)
