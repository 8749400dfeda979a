"""syncd for Python: keeps the workers of a data-parallel training job in step.

    with syncd.connect() as client, client.join("job", "ssp:3") as worker:
        for step in worker:               # may wait: the job's policy decides
            if step.pull: ...             # renew the parameters
            ...                           # compute, make the update visible to the others
            worker.push(loss=loss)

connect("auto") finds a daemon, or starts one; serve() is one inside this process; `python -m syncd`
becomes one.

syncd.aio has the same for asyncio, syncd.torch every policy in ten lines of PyTorch, syncd.torchrun a rendezvous for
torchrun, syncd.checkpoint agreed checkpoints.
"""

from ._library import LibraryNotFound, library_version
from ._observe import Observer, observe
from ._programs import ProgramNotFound
from ._server import Server, serve
from ._values import (
    Checkpoint,
    CheckpointShard,
    Event,
    EventKind,
    Explanation,
    Member,
    MemberState,
    Members,
    Pushed,
    Round,
    Step,
    Update,
    View,
    ViewMember,
    WaitedFor,
)
from .client import Client, Worker, connect
from .errors import (
    Cancelled,
    Closed,
    Error,
    Fenced,
    Invalid,
    Status,
    Stopped,
    Timeout,
    Unreachable,
    Unsupported,
    WrongIteration,
)
from .update_queue import UpdateQueue

__version__ = "0.1.0"

__all__ = [
    "Cancelled",
    "Checkpoint",
    "CheckpointShard",
    "Client",
    "Closed",
    "Error",
    "Event",
    "EventKind",
    "Explanation",
    "Fenced",
    "Invalid",
    "LibraryNotFound",
    "Member",
    "MemberState",
    "Members",
    "Observer",
    "ProgramNotFound",
    "Pushed",
    "Round",
    "Server",
    "Status",
    "Step",
    "Stopped",
    "Timeout",
    "Unreachable",
    "Unsupported",
    "Update",
    "UpdateQueue",
    "View",
    "ViewMember",
    "WaitedFor",
    "Worker",
    "WrongIteration",
    "connect",
    "library_version",
    "observe",
    "serve",
]
