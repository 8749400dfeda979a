"""Agreed checkpoints with PyTorch: run it, kill it, run it again, and it goes on.

RANK=0 WORLD_SIZE=2 python3 agreed_checkpoint.py DIRECTORY & RANK=1 WORLD_SIZE=2 python3 ...

The job asks for a checkpoint by itself (checkpoint_every in syncd.toml), an operator does
(syncctl checkpoint agreed), or a SIGTERM, after which the process leaves.
"""

import sys

import torch

import syncd
from syncd.checkpoint import Saver, on_sigterm

torch.manual_seed(1)
model = torch.nn.Linear(4, 1)
sgd = torch.optim.SGD(model.parameters(), lr=0.05)
truth = torch.tensor([[1.0], [-2.0], [3.0], [0.5]])
loss = torch.zeros(())
with syncd.connect() as client, client.join("agreed", "bsp", checkpoints=True) as worker:
    on_sigterm(worker)
    state = lambda: {"m": model.state_dict(), "o": sgd.state_dict(), "at": at}
    saver = Saver(worker, sys.argv[1], state)
    found = saver.load()
    at = first = found.state["at"] if found else 0  # iterations since the first start
    if found:
        model.load_state_dict(found.state["m"])
        sgd.load_state_dict(found.state["o"])
    for step in worker:
        saver.save(step)
        if at >= int(sys.argv[2] if len(sys.argv) > 2 else 200):
            break
        inputs = torch.randn(16, 4, generator=torch.Generator().manual_seed(at))
        loss = torch.nn.functional.mse_loss(model(inputs), inputs @ truth)
        sgd.zero_grad()
        loss.backward()
        sgd.step()
        worker.push(loss=loss.item())
        at += 1
print(f"from {first}: loss {loss.item():.6f}")
