"""One rank of a replica: several of them train one model together, and are one worker of the job.

    replica_worker.py KIND REPLICA REPLICAS AVERAGINGS [VALUE]

KIND  "copies": each rank has the whole model, and gradients are summed over the replica, as under DDP.
      "parts": tensor parallel, of DTensors; it takes torch 2
      "fsdp": FSDP 2; on CPUs it takes a late torch
      Rank 1 of replica 1 is at fault, else as "copies": "swapped": its layers have other names; "dies": it is killed
      in its fifth averaging; "raises": it ends its block with an exception after two, and lives on (without sums of gradients, for
      which the other one would wait); "leaves": likewise by a break; "unlike": it is to save nothing
CHECKPOINT is a directory; "": none. RANK, WORLD_SIZE and MASTER_PORT are the replica's own. Says "own N" after the Nth average of this process; at the
end "N VALUE", where VALUE is what this rank's part of the parameters was.
"""

import os
import signal
import sys
import time

import torch
import torch.distributed as dist

import syncd.torch as st
from syncd.torch import _averaging

kind, replica, replicas, averagings = sys.argv[1], *map(int, sys.argv[2:5])
value = float(sys.argv[5]) if len(sys.argv) > 5 else 0.0
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(replica)
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 8))
with torch.no_grad():
    for one in model.parameters():
        one.copy_(torch.linspace(-0.2, 0.2, one.numel()).view_as(one) + value)
if kind == "parts":
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    parallelize_module(model, init_device_mesh("cpu", (size,)), plan)
if kind == "fsdp":
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (size,))
    for one in (model[0], model[2], model):
        fully_shard(one, mesh=mesh)
optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
at_fault = replica == rank == 1
if kind == "swapped" and at_fault:
    model = torch.nn.ModuleDict({"b": model[2], "a": model[0]})
if kind == "dies" and at_fault:
    fill, filled = _averaging.Staging.fill, []

    def fill_or_die(*given):
        filled.append(given)
        if len(filled) == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        return fill(*given)

    _averaging.Staging.fill = fill_or_die
torch.manual_seed(1000 * replica + (0 if kind == "parts" else rank))


def part():
    tensors = [one.to_local() if hasattr(one, "to_local") else one for one in model.parameters()]
    return sum(one.double().sum().item() for one in tensors)


said, seen = 0, []
options = {"optimizer": optimizer, "job": "replicas", "weight": "steps", "replica": True}
options["checkpoint"] = None if kind == "unlike" and at_fault else os.environ["CHECKPOINT"] or None
try:
    with st.run("elastic_bsp:8", model, rank=replica, world_size=replicas, **options) as job:
        for step, _ in job.steps(averagings=averagings):
            if job.averagings != said:
                said = job.averagings
                seen.append((said, part()))
                print(f"own {len(seen)}", flush=True)
            if kind == "raises" and at_fault and len(seen) == 2:
                raise ArithmeticError("as the test wants it")
            if kind == "leaves" and at_fault and len(seen) == 2:
                break
            optimizer.zero_grad()
            x = torch.randn(16, 8)
            (model(x) - x).square().mean().backward()
            if kind not in ("parts", "fsdp", "raises", "leaves"):
                for one in model.parameters():
                    dist.all_reduce(one.grad)
            optimizer.step()
            job.push()
except ArithmeticError:
    time.sleep(10**6)
if kind == "leaves" and at_fault:
    time.sleep(10**6)
if job.averagings != said:
    seen.append((job.averagings, part()))
for number, result in seen:
    print(number, f"{result:.12g}")
