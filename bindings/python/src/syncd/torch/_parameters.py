"""What a parameter server holds: parameters in shards, their optimizer, and which updates are in them.

No sockets here. The parameters lie in anonymous shared memory: a header of numbers (the life, one counter
for each shard), then the values. A shard's counter is odd while the server applies an update: a reader on
the same machine copies, and copies again if the counter has changed meanwhile (a seqlock).
"""

from __future__ import annotations

import importlib
import inspect
import math
import mmap
import os
import queue
import secrets
import threading
from collections import defaultdict
from typing import Any, Callable, Iterable, Sequence

import torch

from ..errors import Error, Status, error_of

HEADER = 4096
_ALIGNED = 64
_SHARDS_MAX = 64
_SHARD_BYTES = 4 << 20  # a smaller one is not worth a thread
_SENDERS_MAX = 65536
_SAME_MODEL = "allowed: the same model in every worker, and a name for each job (job=)"
# They concern the device on which the worker would have stepped.
_DEVICE_OPTIONS = {"foreach": None, "fused": None, "capturable": False}


class Layout:
    """Where each parameter lies in memory.

    described  name, shape and dtype ("float32") of each, in order
    shards     into how many they are divided, between tensors; None: by their size and the number of CPUs
    """

    def __init__(
        self, described: Iterable[tuple[str, Sequence[int], str]], shards: int | None = None
    ) -> None:
        self.described = [(name, tuple(shape), dtype) for name, shape, dtype in described]
        self.names = [name for name, _, _ in self.described]
        self._starts = [0]
        for _, shape, dtype in self.described:
            size = math.prod(shape) * torch.empty(0, dtype=getattr(torch, dtype)).element_size()
            self._starts.append(self._starts[-1] + -(-size // _ALIGNED) * _ALIGNED)
        self.size = max(self._starts[-1], _ALIGNED)
        if shards is None:
            shards = min(os.cpu_count() or 1, 8, self.size // _SHARD_BYTES)
        count = max(1, min(shards, len(self.names), _SHARDS_MAX))
        bounds = [0]
        for shard in range(1, count):
            # The tensor that begins nearest to where equal shards would.
            choices = range(bounds[-1] + 1, len(self.names) - (count - shard) + 1)
            wanted = self.size * shard / count
            bounds.append(min(choices, key=lambda at: abs(self._starts[at] - wanted)))
        bounds.append(len(self.names))
        self.shards = [range(low, high) for low, high in zip(bounds, bounds[1:])]

    def bytes_of(self, shard: int) -> slice:
        return self.bytes_of_range(self.shards[shard])

    def bytes_of_range(self, members: range) -> slice:
        return slice(self._starts[members.start], self._starts[members.stop])

    def length(self, members: range) -> int:
        return self._starts[members.stop] - self._starts[members.start]

    def views(self, memory: Any, base: int = 0) -> list[torch.Tensor]:
        """Tensors over `memory`, in which the first parameter begins at `base`."""
        found = []
        for (_, shape, name), start in zip(self.described, self._starts):
            dtype, count = getattr(torch, name), math.prod(shape)
            flat = torch.empty(0, dtype=dtype)
            if count:
                flat = torch.frombuffer(memory, dtype=dtype, count=count, offset=base + start)
            found.append(flat.view(shape))
        return found

    def differs_from(self, server: Layout) -> str:
        """How a worker's parameters differ from the server's; "": they do not."""
        mine = {name: (list(shape), dtype) for name, shape, dtype in self.described}
        its = {name: (list(shape), dtype) for name, shape, dtype in server.described}
        for name in [*its, *mine]:
            here, there = mine.get(name), its.get(name)
            if here is None or there is None:
                has, lacks = (
                    ("the server", "this worker") if there else ("this worker", "the server")
                )
                return f"{has} has a parameter {name}, and {lacks} none of that name; {_SAME_MODEL}"
            if here != there:
                return (
                    f"parameter {name} has shape {here[0]} and type {here[1]} here, and {there[0]} and "
                    f"{there[1]} on the server; {_SAME_MODEL}"
                )
        if self.names != server.names:
            return f"the server has the parameters in another order; {_SAME_MODEL}"
        return ""


def describe_parameters(model: torch.nn.Module) -> list[tuple[str, tuple[int, ...], str]]:
    return [
        (name, tuple(one.shape), str(one.dtype).rpartition(".")[2])
        for name, one in model.named_parameters()
    ]


# ---- The optimizer as plain values: a checkpoint and a server on another machine take it


def _plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.numel() == 1:
        return value.item()
    if isinstance(value, (tuple, list)):
        return type(value)(_plain(one) for one in value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"it is of type {type(value).__name__}")


def describe_options(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """The options of each parameter group, without its parameters.

    Raises Error (SYNCD_E_INVALID) for an option that is neither number, text, nor a tuple of them.
    """
    return [_options(optimizer, group) for group in optimizer.param_groups]


def _options(optimizer: torch.optim.Optimizer, group: dict[str, Any]) -> dict[str, Any]:
    options = {}
    for key, value in group.items():
        if key == "params":
            continue
        try:
            options[key] = _DEVICE_OPTIONS[key] if key in _DEVICE_OPTIONS else _plain(value)
        except TypeError as error:
            raise _unfit(optimizer, f"its option {key} cannot be sent: {error}") from None
    return options


def describe_optimizer(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Class, options, and which parameters are in which group; the state of each that has one.

    Raises Error (SYNCD_E_INVALID), which names the optimizer, if a server could not make the same one.
    """
    kind = type(optimizer)
    where = f"{kind.__module__}:{kind.__qualname__}"
    if kind.__module__ == "__main__" or "<locals>" in kind.__qualname__:
        raise _unfit(
            optimizer,
            f"its class {where} cannot be imported by another process; put it into a module",
        )
    if kind is torch.optim.SparseAdam:
        raise _unfit(optimizer, "gradients come to the server dense; use Adam")
    closure = inspect.signature(kind.step).parameters.get("closure")
    if kind is torch.optim.LBFGS or (closure is not None and closure.default is closure.empty):
        raise _unfit(optimizer, "its step() evaluates the model, which the server does not have")
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    groups, states = [], {}
    for group in optimizer.param_groups:
        members = []
        for parameter in group["params"]:
            name = names.get(id(parameter))
            if name is None:
                shape = list(parameter.shape)
                raise _unfit(
                    optimizer, f"it has a parameter of shape {shape} that is not the model's"
                )
            members.append(name)
            if optimizer.state.get(parameter):
                states[name] = {
                    key: value.detach().cpu() if isinstance(value, torch.Tensor) else value
                    for key, value in optimizer.state[parameter].items()
                }
        groups.append(members)
    return {
        "class": where,
        "defaults": _options(optimizer, optimizer.defaults),
        "groups": groups,
        "options": describe_options(optimizer),
        "states": states,
    }


def _unfit(optimizer: torch.optim.Optimizer, why: str) -> Error:
    name = type(optimizer).__name__
    return error_of(
        Status.E_INVALID,
        f"optimizer {name} cannot run on a parameter server: {why}; allowed: an optimizer of torch.optim "
        "such as SGD or Adam, or an importable class whose options are numbers",
    )


def _unfit_option(key: str, value: Any, begun: Any) -> str:
    """Why an optimizer that began with `begun` cannot go on with this value; "": it can."""
    allowed = ""
    if isinstance(value, (tuple, list)) and isinstance(begun, (tuple, list)):
        if len(value) != len(begun):
            allowed = f"{len(begun)} values"
        elif key == "betas" and not all(_is_number(one) and 0 <= one < 1 for one in value):
            allowed = "numbers from 0, below 1"
        else:
            found = (_unfit_option("", *pair) for pair in zip(value, begun))
            allowed = next(filter(None, found), "")
    elif isinstance(begun, bool):
        allowed = "" if isinstance(value, bool) else "True or False"
    elif _is_number(begun):
        if not _is_number(value) or (math.isfinite(begun) and not math.isfinite(value)):
            allowed = "a finite number" if math.isfinite(begun) else "a number"
    elif begun is not None and type(value) is not type(begun):
        allowed = f"of type {type(begun).__name__}"
    return allowed


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def make_optimizer(
    described: dict[str, Any], parameters: dict[str, torch.Tensor]
) -> tuple[torch.optim.Optimizer, list[int]]:
    """The optimizer of those `parameters`, as unpickling would make it, and which of the described groups
    its groups are."""
    module, _, path = described["class"].partition(":")
    try:
        kind: Any = importlib.import_module(module)
        for name in path.split("."):
            kind = getattr(kind, name)
    except (ImportError, AttributeError) as error:
        raise error_of(
            Status.E_INVALID,
            f"optimizer {path} of module {module} is not where the server runs ({error}); start it with this "
            "module on PYTHONPATH",
        ) from error
    is_optimizer = isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer)
    if not is_optimizer:
        raise error_of(Status.E_INVALID, f"{path} of module {module} is no torch.optim.Optimizer")
    groups, numbers = [], []
    for number, (names, options) in enumerate(zip(described["groups"], described["options"])):
        members = [parameters[name] for name in names if name in parameters]
        if members:
            groups.append({**options, "params": members})
            numbers.append(number)
    states: Any = defaultdict(dict)
    for name, state in described["states"].items():
        if name in parameters:
            states[parameters[name]] = {
                key: value.clone() if isinstance(value, torch.Tensor) else value
                for key, value in state.items()
            }
    made = kind.__new__(kind)
    made.__setstate__(
        {"defaults": dict(described["defaults"]), "state": states, "param_groups": groups}
    )
    return made, numbers


# ---- The server's state


class Ledger:
    """How many updates a training's parameters have had, in two numbers that outlive the server.

    memory: 16 bytes, shared with a file; None: they live as long as this object.
    """

    def __init__(self, memory: Any = None) -> None:
        self._numbers = memoryview(bytearray(16) if memory is None else memory).cast("B").cast("Q")

    def begin(self, training: int, updates: int) -> int:
        """Parameters of this training are there that have had `updates`. How many it had had beyond that."""
        before = self._numbers[1] if self._numbers[0] == training else 0
        self._numbers[0], self._numbers[1] = training, updates
        return max(0, before - updates)

    def set(self, updates: int) -> None:
        self._numbers[1] = updates


class _Ticket:
    """One update on its way through the shards."""

    def __init__(self, shards: int) -> None:
        self._left = shards
        self._lock = threading.Lock()
        self._over = threading.Event()
        self.outcome = "applied"

    def done(self) -> None:
        with self._lock:
            self._left -= 1
            if self._left == 0:
                self._over.set()

    def wait(self) -> None:
        self._over.wait()


class _Shard:
    """Some parameters, their optimizer, and the thread that changes them."""

    def __init__(self, number: int, parameters: Parameters, described: dict[str, Any]) -> None:
        members = parameters.layout.shards[number]
        self._counters = parameters.counters
        self._counter = 1 + number
        self._members = members
        self._values = {
            parameters.layout.names[at]: torch.nn.Parameter(
                parameters.views[at], requires_grad=True
            )
            if parameters.views[at].is_floating_point() or parameters.views[at].is_complex()
            else parameters.views[at]
            for at in members
        }
        self.optimizer, self._groups = make_optimizer(described, self._values)
        self._may_keep_gradients = not described["class"].startswith("torch.optim.")
        self._own: set[str] = set()  # options that the optimizer changes by itself
        self.lock = threading.Lock()  # held while the parameters change
        self.tasks: queue.SimpleQueue[Callable[[], bool]] = queue.SimpleQueue()
        self._turn = threading.Lock()
        # Who gives a task to the first shard runs one of it: a small model needs no switch of threads.
        self.has_thread = number > 0
        if self.has_thread:
            threading.Thread(target=self._run, name=f"shard-{number}", daemon=True).start()

    def _run(self) -> None:
        while self.run_one():
            pass

    def run_one(self) -> bool:
        """The task that is next: there must be one, or it waits. False: it was the last."""
        with self._turn:
            return self.tasks.get()()

    def apply(
        self, gradients: Sequence[torch.Tensor], present: bytes, options: list[dict[str, Any]]
    ) -> None:
        for at, value in zip(self._members, self._values.values()):
            gradient = gradients[at] if present[at] else None
            if gradient is not None and self._may_keep_gradients:
                gradient = gradient.clone()
            value.grad = gradient
        groups = self.optimizer.param_groups
        given = [options[number] for number in self._groups]
        for group, new in zip(groups, given):
            group.update((key, value) for key, value in new.items() if key not in self._own)
        with self.lock:
            self._counters[self._counter] += 1
            try:
                if groups:
                    self.optimizer.step()
            finally:
                self._counters[self._counter] += 1
        for group, new in zip(groups, given):
            self._own.update(key for key, value in new.items() if group[key] is not value)
        for value in self._values.values():
            value.grad = None

    def snapshot(self) -> tuple[dict[str, torch.Tensor], dict[str, Any], dict[int, dict[str, Any]]]:
        """Copies: the values, the optimizer's state by name, the options of each group."""
        values = {name: one.detach().clone() for name, one in self._values.items()}
        states = {
            name: {
                key: value.clone() if isinstance(value, torch.Tensor) else value
                for key, value in self.optimizer.state[one].items()
            }
            for name, one in self._values.items()
            if self.optimizer.state.get(one)
        }
        options = {
            number: {key: value for key, value in group.items() if key != "params"}
            for number, group in zip(self._groups, self.optimizer.param_groups)
        }
        return values, states, options


class Parameters:
    """The parameters of one life of a server.

    layout  of the parameters
    begun   how they begin: describe_optimizer()'s values; of a snapshot() also what that has besides
    fill    called with the memory of the values, to fill it
    ledger  outlives this object
    """

    def __init__(
        self,
        layout: Layout,
        begun: dict[str, Any],
        fill: Callable[[memoryview], object],
        ledger: Ledger | None = None,
    ) -> None:
        self.layout = layout
        self.life = secrets.randbits(63)
        self.descriptor = os.memfd_create("syncd-parameters")
        os.truncate(self.descriptor, HEADER + layout.size)
        memory = mmap.mmap(self.descriptor, HEADER + layout.size)
        self.memory = memoryview(memory)
        self.counters = self.memory[:HEADER].cast("Q")
        self.counters[0] = self.life
        self.values = self.memory[HEADER:]
        fill(self.values)
        self.views = layout.views(memory, HEADER)
        self.updates = int(begun.get("updates", 0))
        self.dropped_updates = 0  # computed from parameters of another life
        self.failure = ""  # why nothing can be applied any more
        self._begun = begun
        self._training = begun.get("training") or secrets.randbits(63)
        self._ledger = ledger or Ledger()
        self._lost_before = begun.get("lost_updates", 0)
        self._lost_known = self._ledger.begin(self._training, self.updates)
        self._lost_told = 0
        # By sender: the highest sequence that was taken, and its ticket while that is known.
        self._taken: dict[str, tuple[int, _Ticket | None]] = {
            nonce: (sequence, None) for nonce, sequence in begun.get("sequences", {}).items()
        }
        self._lock = threading.Lock()
        self.shards = [_Shard(number, self, begun) for number in range(len(layout.shards))]

    @property
    def lost_updates(self) -> int:
        """Updates that were applied and are not in these parameters: a checkpoint was older."""
        return int(self._lost_before + max(self._lost_known, self._lost_told))

    def told(self, nonce: str, sequence: int) -> None:
        """A worker says that its updates up to `sequence` were applied. Those that these parameters do not
        have are lost."""
        with self._lock:
            known, _ = self._taken.get(nonce, (0, None))
            if sequence > known:
                self._lost_told += sequence - known
                self._taken[nonce] = (sequence, None)

    def push(
        self,
        nonce: str,
        sequence: int,
        life: int,
        gradients: Sequence[torch.Tensor],
        present: bytes,
        options: list[dict[str, Any]],
    ) -> str:
        """One worker's whole update. Returns once it is applied to every shard.

        nonce, sequence  the sender and its count of updates, from 1: an update that comes again is not
                         applied again, and gets the same answer
        life             of the parameters that the gradients were computed from
        gradients        one for each parameter, in the layout's order
        present          one byte for each: 0 means that the parameter has no gradient

        "applied", or "dropped": it was computed from parameters of another life.
        Raises Error: SYNCD_E_INTERNAL if the optimizer has failed, SYNCD_E_INVALID for options that it
        cannot take.
        """
        self._check_update(present, options)
        with self._lock:
            known, ticket = self._taken.get(nonce, (0, None))
            if is_new := sequence > known:
                ticket = self._take(nonce, sequence, life, gradients, present, options)
        if ticket is None:
            return "applied"
        if is_new and ticket.outcome == "applied":
            self.shards[0].run_one()
        ticket.wait()
        self.check()
        return ticket.outcome

    def differs_from(self, optimizer: dict[str, Any]) -> str:
        """How a worker's optimizer, its class and groups, differs from the one here; "": it does not."""
        here, there = optimizer, self._begun
        if here["class"] != there["class"]:
            return (
                f"the optimizer is {here['class']} here, and {there['class']} on the server; allowed: the same "
                "in every worker"
            )
        if len(here["groups"]) != len(there["groups"]):
            return (
                f"the optimizer has {len(here['groups'])} parameter groups here, and {len(there['groups'])} "
                "on the server; allowed: the same in every worker"
            )
        mine, its = (
            {name: number for number, names in enumerate(one["groups"]) for name in names}
            for one in (here, there)
        )
        for name in self.layout.names:
            if mine.get(name) != its.get(name):
                mine_is, its_is = (
                    "none" if at is None else str(at) for at in (mine.get(name), its.get(name))
                )
                return (
                    f"the optimizer has parameter {name} in group {mine_is} here, and {its_is} on the server; "
                    "allowed: the same in every worker"
                )
        return ""

    def _check_update(self, present: bytes, options: list[dict[str, Any]]) -> None:
        """Raises Error (SYNCD_E_INVALID) for what the optimizer cannot take; nothing of it is taken then."""
        begun = self._begun["options"]
        if len(present) != len(self.views) or len(options) != len(begun):
            raise error_of(
                Status.E_INVALID,
                f"the update has {len(present)} parameters in {len(options)} groups; allowed: "
                f"{len(self.views)} in {len(begun)}, as when the training began",
            )
        for number, (new, old) in enumerate(zip(options, begun)):
            for key, value in new.items():
                allowed = _unfit_option(key, value, old[key]) if key in old else ""
                if allowed:
                    raise error_of(
                        Status.E_INVALID,
                        f"the option {key}={value!r} of parameter group {number}; allowed: {allowed}; nothing "
                        "of this update was applied",
                    )

    def _take(
        self,
        nonce: str,
        sequence: int,
        life: int,
        gradients: Sequence[torch.Tensor],
        present: bytes,
        options: list[dict[str, Any]],
    ) -> _Ticket:
        """Under the lock, so that every shard sees the updates in the same order."""
        fits = life == self.life
        ticket = _Ticket(len(self.shards) if fits else 1)
        self._taken.pop(nonce, None)  # the dictionary's order is that of the latest updates
        self._taken[nonce] = (sequence, ticket)
        if len(self._taken) > _SENDERS_MAX:
            del self._taken[next(iter(self._taken))]
        if not fits:
            self.dropped_updates += 1
            ticket.outcome = "dropped"
            ticket.done()
            return ticket
        self.updates += 1
        self._ledger.set(self.updates)
        for shard in self.shards:
            shard.tasks.put(self._applying(shard, ticket, gradients, present, options))
        return ticket

    def _applying(self, shard: _Shard, ticket: _Ticket, *update: Any) -> Callable[[], bool]:
        def task() -> bool:
            try:
                if not self.failure:
                    shard.apply(*update)
            except Exception as error:
                kind = type(shard.optimizer).__name__
                self.failure = (
                    f"the step of {kind} on the server raised {type(error).__name__}: {error}; nothing is applied "
                    "any more. Allowed: an optimizer that steps with its options and its state alone, as those "
                    "of torch.optim do"
                )
            ticket.done()
            return True

        return task

    def check(self) -> None:
        if self.failure:
            raise error_of(Status.E_INTERNAL, self.failure)

    def copy(self, shard: int, target: memoryview) -> None:
        """A shard's values as they are between two updates."""
        part = self.layout.bytes_of(shard)
        with self.shards[shard].lock:
            # torch's copy releases the interpreter's lock.
            source = torch.frombuffer(self.values[part], dtype=torch.uint8)
            torch.frombuffer(target, dtype=torch.uint8).copy_(source)

    def snapshot(self) -> dict[str, Any]:
        """All there is to begin another life from, as plain values, cut between two updates."""
        parts: list[Any] = [None] * len(self.shards)

        def taking(number: int, shard: _Shard, ticket: _Ticket) -> Callable[[], bool]:
            def task() -> bool:
                try:
                    parts[number] = shard.snapshot()
                finally:
                    ticket.done()
                return True

            return task

        ticket = _Ticket(len(self.shards))
        with self._lock:
            found = {
                "sequences": {nonce: sequence for nonce, (sequence, _) in self._taken.items()},
                "updates": self.updates,
                "lost_updates": self.lost_updates,
                "training": self._training,
            }
            for number, shard in enumerate(self.shards):
                shard.tasks.put(taking(number, shard, ticket))
        self.shards[0].run_one()
        ticket.wait()
        self.check()
        values: dict[str, torch.Tensor] = {}
        states: dict[str, Any] = {}
        options = list(self._begun["options"])
        for some_values, some_states, some_options in parts:
            values.update(some_values)
            states.update(some_states)
            for number, one in some_options.items():
                options[number] = one
        described = {key: self._begun[key] for key in ("class", "defaults", "groups")}
        return {**found, **described, "options": options, "states": states, "values": values}

    def close(self) -> None:
        """Ends the threads. Workers that still have the memory see that its life is over."""
        self.counters[0] = 0
        for shard in self.shards:
            if shard.has_thread:
                shard.tasks.put(lambda: False)
        os.close(self.descriptor)
