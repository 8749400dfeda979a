"""Decentralized training: every worker mixes its model with its neighbours', without a server.

    python3 -m syncd.torchrun --standalone --nproc-per-node=4 torch_hop.py [POLICY]

With backup=1 nobody waits for the slowest neighbour's update; with max_ig=4 a
worker runs at most 4 iterations ahead of one that it sends to. Exits with 0 if the model fits data that
this worker has never seen.
"""

import os
import sys

import torch

import syncd.torch as st

policy = sys.argv[1] if len(sys.argv) > 1 else "hop:ring_based,backup=1,max_ig=4"
rank = int(os.environ["RANK"])
torch.manual_seed(7)
truth = torch.randn(8, 1)  # the same everywhere
torch.manual_seed(100 + rank)
inputs = torch.randn(512, 8)
inputs[:, rank % 8] = 0  # what this worker cannot learn alone
data = torch.utils.data.TensorDataset(inputs, inputs @ truth)
loader = torch.utils.data.DataLoader(data, batch_size=32, shuffle=True)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

with st.run(policy, model, optimizer=optimizer, job="hop-example") as job:
    for step, (x, y) in job.steps(loader, iterations=200):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        job.mix(loss, samples=len(x))

fresh = torch.randn(256, 8)
error = torch.nn.functional.mse_loss(model(fresh), fresh @ truth).item()
print(f"worker {rank}: {job.mixed} updates mixed in, error on fresh data {error:.6f}")
sys.exit(not error < 0.01)
