"""Workers train a model of their own, and average it where syncd says that all meet.

    python3 -m syncd.torchrun --standalone --nproc-per-node=4 torch_averaging.py [AVERAGINGS]

Under elastic_bsp a worker that is twice as fast does twice as many iterations between two averagings. A
worker that is killed does not stop the others; started again with its RANK, it goes on with their parameters.
"""

import os
import sys

import torch

import syncd.torch as st

rank = int(os.environ["RANK"])
torch.manual_seed(7)
truth = torch.randn(8, 1)  # the same everywhere
torch.manual_seed(rank)
inputs = torch.randn(256, 8)
inputs[:, rank % 8] = 0  # what this worker cannot learn alone
data = torch.utils.data.TensorDataset(inputs, inputs @ truth)
loader = torch.utils.data.DataLoader(data, batch_size=32, shuffle=True)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
criterion, averagings = torch.nn.MSELoss(), int((sys.argv + ["40"])[1])

with st.run(
    "elastic_bsp:8", model, optimizer=optimizer, job="averaged", weight="samples"
) as job:
    for step, (x, y) in job.steps(loader, averagings=averagings):
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        optimizer.step()
        job.push()

fresh = torch.randn(256, 8)
error = criterion(model(fresh), fresh @ truth).item()
print(f"worker {rank}: {job.averagings} averagings, error on fresh data {error:.5f}")
sys.exit(not error < 0.01)
