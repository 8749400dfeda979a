"""Agreed checkpoints by torch.distributed.checkpoint (DCP): kill it, start it again, and it goes on.

torchrun --nproc-per-node=2 --rdzv-backend=syncd --rdzv-id=llm dcp_checkpoint.py DIRECTORY ITERATIONS
A thread writes what each rank has of the model. Any number of ranks may load it. Needs torch 2.3."""

import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import syncd
from syncd.checkpoint import DcpSaver, on_sigterm

dist.init_process_group("gloo")
torch.manual_seed(1)
model = DistributedDataParallel(torch.nn.Linear(4, 1))
sgd = torch.optim.SGD(model.parameters(), lr=0.05)
truth = torch.tensor([[1.0], [-2.0], [3.0], [0.5]])
at = 0  # iterations since the first start
with syncd.connect() as client, client.join("dcp", "bsp", checkpoints=True) as worker:
    on_sigterm(worker)
    group = dist.new_group(backend="gloo")  # the thread's own
    state = lambda: {"model": model.module.state_dict(), "at": at}
    saver = DcpSaver(worker, sys.argv[1], state, process_group=group, background=True)
    found = saver.load()  # fills the model
    at = first = found.state["at"] if found else 0
    for step in worker:
        saver.save(step)
        if at >= int(sys.argv[2]):
            break
        inputs = torch.randn(16, 4, generator=torch.Generator().manual_seed(at * 64 + worker.rank))
        loss = torch.nn.functional.mse_loss(model(inputs), inputs @ truth)
        sgd.zero_grad()
        loss.backward()
        sgd.step()
        worker.push(loss=loss.item())
        at += 1
    saver.wait()
print(f"from {first} to {at}")
