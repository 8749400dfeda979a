"""Local SGD with PyTorch: every worker trains a model of its own, syncd says when they average.

    python3 torch_local_sgd.py RANK WORKERS [AVERAGINGS [POLICY]]     one process for each rank

Needs MASTER_ADDR and MASTER_PORT for torch.distributed; `torchrun --nproc-per-node=4
torch_local_sgd.py` sets them, RANK and WORLD_SIZE. With elastic_bsp a worker that is twice as fast
does twice as many iterations between two averagings, instead of waiting. Exits with 0 if this
worker's averaged model fits data that it has never seen.
"""

import os
import sys

import torch
import torch.distributed as dist

import syncd
from syncd.torch import Coordinated

rank = int(sys.argv[1] if len(sys.argv) > 1 else os.environ["RANK"])
workers = int(sys.argv[2] if len(sys.argv) > 2 else os.environ["WORLD_SIZE"])
averagings = int(sys.argv[3]) if len(sys.argv) > 3 else 40
policy = sys.argv[4] if len(sys.argv) > 4 else "elastic_bsp:8"

torch.set_num_threads(1)
dist.init_process_group("gloo", rank=rank, world_size=workers)
torch.manual_seed(7)
truth = torch.randn(8, 1)  # the same everywhere
torch.manual_seed(rank)
inputs = torch.randn(256, 8)
inputs[:, rank % 8] = 0  # what this worker cannot learn alone
labels = inputs @ truth
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

with syncd.connect() as client:
    with client.join("local-sgd", policy, rank=rank, world_size=workers) as worker:
        coord = Coordinated(worker, model)
        for step in coord.steps(averagings=averagings):  # waits, and averages where it is due
            batch = torch.randint(256, (32,))
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(inputs[batch]), labels[batch])
            loss.backward()
            optimizer.step()
            coord.push(loss=loss, samples=len(batch))

fresh = torch.randn(256, 8)
error = torch.nn.functional.mse_loss(model(fresh), fresh @ truth).item()
print(f"worker {rank}: {coord.averaged} averagings, error on fresh data {error:.5f}")
sys.exit(not error < 0.01)
