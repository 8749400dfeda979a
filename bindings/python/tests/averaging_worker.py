"""A worker that averages until it has AVERAGINGS, or the job is stopped.

    averaging_worker.py AVERAGINGS [MODEL'S VALUE [FAIL AT [DIE IN ONCE]]]

Says "own N" after the Nth average of this process; at the end "N VALUE" for each one of the training, where
VALUE is what the parameters were.
DIE IN is "making N" or "averaging N": worker N is killed in the first view of three once the file ONCE is
there, before it makes the view's group or before it averages. The others look for a dead worker 0 only when
it is dead.
"""

import contextlib
import os
import signal
import socket
import sys
import time

import torch

import syncd.torch as st
from syncd.torch import _averaging, _shared_sum, _view_group

averagings = int(sys.argv[1])
value = float(sys.argv[2]) if len(sys.argv) > 2 else 0.0
fail_at = int(sys.argv[3]) if len(sys.argv) > 3 else None
die_in, once = sys.argv[4:] if len(sys.argv) > 4 else (None, "")

torch.set_num_threads(1)
rank = int(os.environ["RANK"])
torch.manual_seed(rank)
model = torch.nn.Linear(64, 64)
with torch.no_grad():
    model.weight.fill_(value)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
batches = [(torch.randn(8, 64),) for _ in range(16)]
seen, said = [], 0


class SecondLoss(_view_group.ViewGroup):
    """Of a worker that is killed in the first view of three, or of those that are in it with that one."""

    def __init__(self, place, *rest):
        if place.size == 3 and os.path.exists(once):
            die("making")
            if die_in == "making 0":
                await_death(place.addresses[0])
        super().__init__(place, *rest)


class SumWithSecondLoss(_shared_sum.SharedSum):
    """It is killed when the others may have begun to wait for its part."""

    def __init__(self, own, rank, cards):
        super().__init__(own, rank, cards)
        self.size = len(cards)

    def add_up(self, *given):
        if self.size == 3 and os.path.exists(once):
            die("averaging")
        super().add_up(*given)


def die(where):
    if die_in == f"{where} {rank}":
        os.kill(os.getpid(), signal.SIGKILL)


def await_death(address):
    host, _, port = address.rpartition(":")
    with contextlib.suppress(OSError):
        while True:
            socket.create_connection((host, int(port))).close()
            time.sleep(0.01)


if die_in:
    _averaging.ViewGroup = SecondLoss
    _view_group.SharedSum = SumWithSecondLoss
    # A wait for a dead worker must outlast the test.
    _view_group._STORE_TIMEOUT_S = _view_group._CONNECT_TIMEOUT_S = 3600.0

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
