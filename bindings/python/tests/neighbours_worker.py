"""A worker under hop or notify_ack for test_neighbours.py: FAULT [AT] [KEY=VALUE of run()...]

It fits a plane, of which it sees all but one input. FAULT in iteration AT: none; hang: sleeps for ever;
nan: a gradient that is not a number; kill: SIGKILL in the middle of its iteration; wrong_model: one of
another shape. SYNCD_TEST_POLICY, SYNCD_TEST_ITERATIONS, SYNCD_TEST_PAUSE (seconds of each iteration),
SYNCD_TEST_AFTER (a file: it joins once that is there)."""

import logging
import os
import re
import signal
import sys
import time

import torch

import syncd.torch as st



class Ear(logging.StreamHandler):
    def emit(self, record):
        super().emit(record)
        hang = re.match(r"syncd: hang: waiting for worker (\d)", record.getMessage())
        if hang:
            print(f"hears that worker {hang.group(1)} hangs", flush=True)


logging.basicConfig(level=logging.INFO, format="log: %(message)s", handlers=[Ear(sys.stdout)])
fault = sys.argv[1]
at = int(sys.argv[2]) if len(sys.argv) > 2 else -1
options = dict(argument.split("=") for argument in sys.argv[3:])
if "shared_memory" in options:
    options["shared_memory"] = options["shared_memory"] == "True"
if "hang_after" in options:
    options["hang_after"] = float(options["hang_after"])
rank = int(os.environ["RANK"])
iterations = int(os.environ.get("SYNCD_TEST_ITERATIONS", "150"))
pause = float(os.environ.get("SYNCD_TEST_PAUSE", "0"))
torch.set_num_threads(1)
torch.manual_seed(7)
truth = torch.randn(8, 1)
torch.manual_seed(rank)
inputs = torch.randn(256, 8)
inputs[:, rank % 8] = 0
labels = inputs @ truth
width = 9 if fault == "wrong_model" else 8
model = torch.nn.Sequential(torch.nn.Linear(width, 1), torch.nn.Identity())
with torch.no_grad():  # so that parameters which nobody gave it are seen in the loss
    model[0].weight.fill_(1000.0 * rank)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
policy = os.environ["SYNCD_TEST_POLICY"]
after = os.environ.get("SYNCD_TEST_AFTER")
while after and not os.path.exists(after):
    time.sleep(0.01)

with st.run(policy, model, optimizer=optimizer, job="plane", **options) as job:
    begun = None
    for step, _ in job.steps(iterations=iterations):
        if begun is None:
            begun = int(step)
            print(f"begins at {begun} with a weight of {model[0].weight.abs().max():.3f}", flush=True)
        if int(step) % 10 == 0:
            print(f"iteration {int(step)}", flush=True)
        batch = torch.randint(256, (32,))
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs[batch]), labels[batch])
        loss.backward()
        time.sleep(pause)
        if int(step) == at:
            print(f"fault {fault}", flush=True)
            if fault == "hang":
                time.sleep(3600)
            if fault == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if fault == "nan":
                model[0].weight.data[0, 3] = float("nan")
        job.mix(loss, samples=32)

fresh = torch.randn(256, 8)
error = torch.nn.functional.mse_loss(model(fresh), fresh @ truth).item()
print(f"{job.mixed} mixed, {job.missing} missing, error {error:.6f}, resumed {job.resumed}", flush=True)
sys.exit(not error < 0.01)
