"""Makes a plain PyTorch training loop a coordinated one. Importing it needs PyTorch.

    torch.distributed.init_process_group("gloo")
    with syncd.connect() as client, client.join("job", "elastic_bsp:15") as worker:
        coord = syncd.torch.Coordinated(worker, model)
        for step in coord.steps(averagings=100):  # waits; averages the parameters where it is due
            optimizer.zero_grad()
            loss = criterion(model(inputs), labels)
            loss.backward()
            optimizer.step()
            coord.push(loss=loss, samples=len(inputs))

That is local SGD: each worker trains a model of its own, and at a synchronization all of them
replace their parameters by the mean.

The averaging is a collective of torch.distributed (any backend, gloo on CPUs), for which every
worker of the job must be a rank of the process group, and all must come to it equally often. So it
needs a policy under which synchronizations are common to all workers: elastic_bsp:R (step.barrier)
or bsp[:k] (each k iterations), or a number of your own (`every`). A process group does not survive
the loss of a member; torch.distributed then reports it by its own timeout.

With a parameter server, pass `pull` instead: it is called where the policy says that parameters
changed, and nothing is averaged. Then asp, ssp and specsync make sense, and SpecSync's advice is
followed between micro-batches:

        coord = Coordinated(worker, model, pull=fetch_parameters)
        for step in coord:
            while True:
                for batch in micro_batches:
                    (criterion(model(batch.inputs), batch.labels) / len(micro_batches)).backward()
                    if coord.should_abort():
                        break
                else:
                    break
                coord.restart()                  # drops the gradients and pulls again
            send_gradients()
            coord.push()
"""

from __future__ import annotations

import re
from typing import Any, Callable, Iterable, Iterator

import torch
import torch.distributed as dist

from .._values import Pushed, Step
from ..client import Worker
from ..errors import Error, Status


def _meetings(policy: str) -> tuple[bool, int | None]:
    """Where all workers meet: whether steps' flags tell it, and else after how many iterations.

    The daemon's answers do not say this, only the policy's text does: a copy of what the daemon
    knows (PolicyTraits), which a test compares with it.
    """
    base = policy.rsplit("+", 1)[-1]  # overlays, such as naive_wait:MS+, do not change it
    name, *arguments = re.split("[:,]", base)
    if name == "elastic_bsp":
        return True, None
    if name != "bsp":
        return False, None
    period = 1
    for argument in arguments:
        key, _, value = argument.rpartition("=")
        if not key:
            period = int(value) if value.isdigit() else 1  # else the daemon refuses it
        # With backup workers a barrier does not wait for all, so that they would not meet.
        elif key == "backup" and value.isdigit() and int(value) > 0:
            return False, None
    return False, period


class Coordinated:
    """One worker's model under the job's policy. One thread at a time.

    worker   a syncd.Worker
    model    a torch.nn.Module, or its parameters (an iterable of tensors). Of a module,
             floating-point buffers (running means of batch normalization) are averaged too
    pull     called, without arguments, when parameters are to be renewed from a parameter server;
             then nothing is averaged
    every    average before each iteration whose number is a multiple of this, from `every` on;
             None: where the policy says
    group    the process group; None: the default one

    Without `pull` all workers get rank 0's parameters at the start, so that all begin alike.
    Raises Error (SYNCD_E_STATE) if torch.distributed is not initialized or has another size than
    the job, SYNCD_E_UNSUPPORTED if the policy has no synchronization common to all.
    """

    def __init__(
        self,
        worker: Worker,
        model: torch.nn.Module | Iterable[torch.Tensor],
        *,
        pull: Callable[[], Any] | None = None,
        every: int | None = None,
        group: Any = None,
    ) -> None:
        self._parameters: list[torch.Tensor]
        buffers: list[torch.Tensor]
        if isinstance(model, torch.nn.Module):
            self._parameters = list(model.parameters())
            buffers = [one for one in model.buffers() if one.is_floating_point()]
        else:
            self._parameters, buffers = list(model), []
        if not self._parameters:
            raise Error("model has no parameters; allowed: a module or tensors", Status.E_INVALID)
        self.worker = worker
        self.averaged = 0  # how often the parameters were averaged
        self._averaging = [*self._parameters, *buffers]
        self._pull = pull
        self._group = group
        self._period: int | None = None
        self._flagged = False
        if pull is not None:
            if every is not None:
                raise Error("every and pull exclude each other; pass one", Status.E_INVALID)
            return
        if every is not None and every < 1:
            raise Error(f"every={every}; allowed: 1 or more, or None", Status.E_INVALID)
        if every is not None:
            self._period = every
        else:
            self._flagged, self._period = _meetings(worker.policy)
        if self._period is None and not self._flagged:
            raise Error(
                f"policy {worker.policy} has no synchronization that all workers share; allowed: "
                "elastic_bsp:R, bsp[:k] without backup, or pass every=N or pull=FUNCTION",
                Status.E_UNSUPPORTED,
            )
        if not dist.is_initialized():
            raise Error(
                "torch.distributed is not initialized; call init_process_group() first",
                Status.E_STATE,
            )
        size = dist.get_world_size(group)
        if size != worker.world_size:
            raise Error(
                f"the process group has {size} members, and the job {worker.world_size} workers; "
                "they must be as many",
                Status.E_STATE,
            )
        first = 0 if group is None else dist.get_global_rank(group, 0)
        with torch.no_grad():
            for tensor in self._averaging:
                dist.broadcast(tensor.data, first, group=group)

    def begin(self, timeout: float | None = None) -> Step:
        """worker.begin(), and then what the step asks for: averages, or calls pull."""
        step = self.worker.begin(timeout)
        if step.stop:
            return step
        if self._pull is not None:
            if step.pull or step.skip:
                self._pull()
        elif (self._flagged and step.barrier) or (
            self._period is not None and step.iteration > 0 and step.iteration % self._period == 0
        ):
            self.average()
        return step

    def average(self) -> None:
        """Replaces the parameters by their mean over the process group: one collective for each
        kind of tensor. All members must call it."""
        kinds: dict[Any, list[torch.Tensor]] = {}
        for tensor in self._averaging:
            kinds.setdefault((tensor.dtype, tensor.device), []).append(tensor.data)
        size = dist.get_world_size(self._group)
        for tensors in kinds.values():
            flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
            dist.all_reduce(flat, group=self._group)
            flat /= size
            at = 0
            for tensor in tensors:
                tensor.copy_(flat[at : at + tensor.numel()].view_as(tensor))
                at += tensor.numel()
        self.averaged += 1

    def should_abort(self) -> bool:
        """Whether to drop this iteration's work and to restart() it: for between micro-batches."""
        return self.worker.should_resync()

    def restart(self) -> None:
        """Follows the advice: drops the gradients, tells the daemon, and pulls. Whoever has already
        changed parameters in this iteration relies on `pull` to renew them."""
        for parameter in self._parameters:
            parameter.grad = None
        self.worker.restarted()
        if self._pull is not None:
            self._pull()

    def push(self, loss: Any = None, samples: int = 0, **options: Any) -> Pushed:
        """worker.push(); the loss may be a tensor of one element, and the size of an update is what
        the parameters take."""
        if isinstance(loss, torch.Tensor):
            loss = loss.item()
        size = sum(one.numel() * one.element_size() for one in self._parameters)
        return self.worker.push(loss, samples, **{"bytes": size, **options})

    def steps(
        self, iterations: int | None = None, *, averagings: int | None = None
    ) -> Iterator[Step]:
        """begin() until the job ends, the next step is `iterations` or later, or the parameters
        were
        averaged `averagings` times (with them as the mean, then).

        All workers must come to the same number of averagings. Under elastic_bsp they do not come
        to it with the same number of iterations: there `iterations` raises SYNCD_E_UNSUPPORTED.
        """
        if iterations is not None and self._flagged:
            raise Error(
                f"iterations={iterations} under {self.worker.policy}, where workers differ in them "
                "when they average; pass averagings=N",
                Status.E_UNSUPPORTED,
            )
        while averagings is None or self.averaged < averagings:
            step = self.begin()
            if step.stop or (iterations is not None and step.iteration >= iterations):
                return
            if averagings is not None and self.averaged >= averagings:
                return
            yield step

    def __iter__(self) -> Iterator[Step]:
        return self.steps()

