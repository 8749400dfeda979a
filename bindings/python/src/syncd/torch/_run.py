"""One call for every policy."""

from __future__ import annotations

import inspect
import os
import re
from typing import Any, Mapping, Sequence

import torch

from ..errors import Status, error_of
from ._job import Job, Options

_AVERAGING = ("bsp", "elastic_bsp")
_SERVER = ("asp", "ssp", "dssp")
_NEIGHBOURS = ("hop", "notify_ack")


def form_of(policy: str) -> str:
    """"averaging", "server" or "neighbours": how workers exchange under a policy. Overlays, such as
    specsync+ and naive_wait:MS+, concern a server.

    Raises Error (SYNCD_E_INVALID) for a policy without a form.
    """
    *overlays, name = [re.split("[:,]", one)[0].strip() for one in policy.split("+")]
    if name in _NEIGHBOURS and not overlays:
        return "neighbours"
    if name in _AVERAGING and not overlays:
        return "averaging"
    # specsync is the innermost.
    if name in _SERVER and overlays[-1:] == ["specsync"]:
        overlays.pop()
    if name in (*_SERVER, *_AVERAGING) and all(one == "naive_wait" for one in overlays):
        return "server"
    allowed = ", ".join((*_AVERAGING, *_SERVER, *_NEIGHBOURS))
    raise error_of(
        Status.E_INVALID,
        f"policy={policy!r}; allowed: {allowed}, with their parameters as in ssp:3; specsync+BASE with "
        f"{', '.join(_SERVER)} as BASE; naive_wait:MS+BASE with all but {', '.join(_NEIGHBOURS)}",
    )


def run(
    policy: str,
    model: torch.nn.Module,
    *,
    optimizer: torch.optim.Optimizer | None = None,
    job: str | None = None,
    form: str | None = None,
    rank: int | None = None,
    world_size: int | None = None,
    name: str | None = None,
    address: str | Sequence[str] | None = "auto",
    checkpoint: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
    hang_after: float | None = None,
    state: Mapping[str, Any] | None = None,
    **of_form: Any,
) -> Job:
    """This process's part in a training job; use it in a `with` statement.

        with st.run("ssp:3", model, optimizer=optimizer, job="mf") as job: ...

    policy      such as "elastic_bsp:8"; it decides the form
    model       a torch.nn.Module; all workers have the same parameters by name and shape
    optimizer   of this model; the forms server and neighbours need one. Averaging takes None: its state is
                then in no checkpoint, and who joins or comes back does not get it
    job         the name that all workers of the job give; None: SYNCD_JOB, else "default"
    form        "averaging", "server" or "neighbours"; None: the policy's own (bsp also runs as "server")
    rank, world_size, name  as for syncd.Client.join(); None: from the environment, as torchrun sets it
    address     of the daemon, as for syncd.connect()
    checkpoint  a directory for agreed checkpoints, which all workers see: saved where the job asks for one,
                and on SIGTERM; the next start of the job continues from the latest complete one
    progress    a progress bar by tqdm; None: worker 0 shows one on a terminal
    hang_after  seconds after which all workers hear who is waited for; None: never
    state       what else the checkpoint has, by name: objects with state_dict() and load_state_dict(), such as
                {"scheduler": scheduler}. Only with checkpoint=

    `of_form`, by form:

    averaging   weight, outer, averaging_timeout, backend, replica, shared_memory: see AveragingJob
    server      see ServerJob
    neighbours  see NeighbourJob

    Returns an AveragingJob, ServerJob or NeighbourJob. Entering its `with` block connects and joins, and
    raises what syncd.connect() and Client.join() do.
    Raises Error (SYNCD_E_INVALID) for an argument that is not allowed.
    """
    for key, one in (state or {}).items():
        if not (hasattr(one, "state_dict") and hasattr(one, "load_state_dict")):
            raise error_of(
                Status.E_INVALID,
                f"state[{key!r}] is of type {type(one).__name__}; allowed: an object with state_dict() and "
                "load_state_dict(), such as a scheduler",
            )
    if state and checkpoint is None:
        raise error_of(Status.E_INVALID, "state= without checkpoint=; allowed: with a directory")
    natural = form_of(policy)
    if form is None:
        form = natural
    elif form != natural and not (form == "server" and natural == "averaging" and policy.startswith("bsp")):
        allowed = '"averaging" and "server"' if policy.startswith("bsp") else f'"{natural}"'
        raise error_of(Status.E_INVALID, f"form={form!r} under {policy}; allowed: {allowed}")
    made = _class_of(form)
    known = inspect.signature(made.__init__).parameters
    for option in of_form:
        if option not in known:
            own = [one.name for one in known.values() if one.kind is one.KEYWORD_ONLY]
            allowed = ", ".join(own) or "none"
            raise error_of(
                Status.E_INVALID,
                f"{option}= under {policy}; options of the form {form}: {allowed}",
            )
    options = Options(
        policy, job, rank, world_size, name, address, checkpoint, progress, hang_after, state or {}
    )
    return made(options, model, optimizer, **of_form)


def _class_of(form: str) -> type[Job]:
    if form == "averaging":
        from ._averaging import AveragingJob

        return AveragingJob
    if form == "server":
        from ._server import ServerJob

        return ServerJob
    from ._neighbours import NeighbourJob

    return NeighbourJob
