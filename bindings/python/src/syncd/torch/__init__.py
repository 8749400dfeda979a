"""syncd for PyTorch. Importing it needs PyTorch, 1.13 or later.

    import syncd.torch as st

    with st.run("elastic_bsp:8", model, optimizer=optimizer, job="cnn") as job:
        for step, (inputs, labels) in job.steps(loader, averagings=500):
            optimizer.zero_grad()
            loss = criterion(model(inputs), labels)
            loss.backward()
            optimizer.step()
            job.push(loss)

`run` is one call for every policy; what the loop's body does depends on its form:

    averaging          bsp[:K], elastic_bsp:R: every worker trains a model of its own; they are averaged
                       where all meet
    parameter server   asp, ssp:S, dssp:LOW-HIGH, specsync+..., naive_wait:MS+...: gradients go to a server,
                       parameters come from it
    neighbours         hop:GRAPH, notify_ack:GRAPH: every worker mixes its model with its neighbours'

`ddp` puts a script with DistributedDataParallel under observation. `Coordinated` averages over a process
group of your own.
"""

from . import _needs  # first: it says so where PyTorch is missing

from ._coordinated import Coordinated
from ._ddp import ddp
from ._job import Iteration, Job
from ._run import run

__all__ = ["Coordinated", "Iteration", "Job", "ddp", "run"]
