"""A training by syncd.torch: steps_worker.py ADDRESS RANK WORLD POLICY ITERATIONS [OPTION=TEXT...]

Says "step N" in each iteration, and at the end "done LOSS". Options are those of run().
"""

import logging
import sys
import time

import torch

import syncd.torch as st

address, rank, world, policy, iterations = sys.argv[1:6]
options = dict(option.split("=") for option in sys.argv[6:])
logging.basicConfig(level=logging.INFO, stream=sys.stderr)
torch.set_num_threads(1)
torch.manual_seed(int(rank))
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
truth = torch.arange(8.0)
data = [(inputs, inputs @ truth) for inputs in torch.randn(20, 16, 8)]


def loss_of(inputs, wanted):
    return ((model(inputs).squeeze(1) - wanted) ** 2).mean()


with st.run(
    policy, model, optimizer=optimizer, job="forms", rank=int(rank), world_size=int(world),
    address=address, **options,
) as job:
    for step, (inputs, wanted) in job.steps(data, iterations=int(iterations)):
        print(f"step {int(step)}", flush=True)
        optimizer.zero_grad()
        loss = loss_of(inputs, wanted)
        loss.backward()
        if job.form == "averaging":
            optimizer.step()
        time.sleep(0.02)
        (job.mix if job.form == "neighbours" else job.push)(loss)
fresh = torch.randn(64, 8)
print(f"done {loss_of(fresh, fresh @ truth).item():.6f}", flush=True)
