"""One worker of a job with a parameter server; says what it does.

python server_worker.py ADDRESS RANK WORLD ITERATIONS POLICY [OPTION=VALUE...]

Options of run(); `pause` seconds in each iteration, `bad=ITERATION` for a NaN, `value` of its initial parameters,
`finish=1` to wait for the others at the end.
"""

import logging
import sys
import time

import torch

import syncd.torch as st

address, rank, world, iterations, policy = sys.argv[1:6]
options = {}
for text in sys.argv[6:]:
    key, _, value = text.partition("=")
    options[key] = float(value) if value.replace(".", "").isdigit() else value
pause, bad, value = (options.pop("pause", 0.0), options.pop("bad", -1), options.pop("value", 0.0))
finish = options.pop("finish", 0)
logging.basicConfig(level=logging.INFO, stream=sys.stderr)
torch.set_num_threads(1)
# Each update takes 1 from every parameter: they say how many were applied.
model = torch.nn.Linear(4, 3)
for parameter in model.parameters():
    parameter.data.fill_(value)
optimizer = torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.0)
with st.run(
    policy,
    model,
    optimizer=optimizer,
    job="job",
    rank=int(rank),
    world_size=int(world),
    address=address,
    **options,
) as job:
    if job._child is not None:
        print(f"server {job._child.pid}")
    print(f"in {model.bias[0].item():.0f} resumed {job.resumed}")
    for step, _ in job.steps(iterations=int(iterations)):
        print(f"step {step} has {model.bias[0].item():.0f}")
        assert len({one.item() for one in [*model.weight.flatten(), *model.bias]}) == 1
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)
        if step == bad:
            model.bias.grad[1] = float("nan")
        time.sleep(pause)
        job.push(step)
        print(f"pushed {step}")
    if finish:
        job.finish()
print(f"ends with {model.bias[0].item():.0f} lost {job.lost_updates} dropped {job.dropped_updates}")
