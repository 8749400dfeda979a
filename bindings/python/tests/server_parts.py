"""Parts of a parameter server that a test steps."""

import contextlib
import secrets
import socket
import threading

import pytest
import torch

import syncd
import syncd.torch as st
from syncd.torch._link import Link, Place
from syncd.torch._parameters import Layout, Parameters, describe_optimizer, describe_parameters
from syncd.torch.server import Server

SECRET = b"s" * 32


class Stepped(torch.optim.SGD):
    """Its step waits, half done, until it is let go. Unless a test says so it does not wait."""

    gate = None

    def step(self):
        super().step()
        gate = type(self).gate
        if gate is not None:
            gate.arrived.release()
            assert gate.go.acquire(timeout=60)
        for group in self.param_groups:  # the second half: the same once more
            for one in group["params"]:
                if one.grad is not None:
                    one.data.add_(one.grad, alpha=-group["lr"])


class Gate:
    def __init__(self):
        self.arrived = threading.Semaphore(0)
        self.go = threading.Semaphore(0)


def model_of(*sizes, value=0.0):
    return torch.nn.ParameterList(torch.full((size,), value) for size in sizes)


def parameters_of(model, optimizer=None, begun=None, shards=None, ledger=None):
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=1.0)
    layout = Layout(describe_parameters(model), shards)

    def fill(memory):
        for view, one in zip(layout.views(memory), model.parameters()):
            view.copy_(one.detach())

    return Parameters(layout, begun or describe_optimizer(model, optimizer), fill, ledger)


@contextlib.contextmanager
def serving(**options):
    """A server on a thread of this process, and its place."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    server = Server(listener, SECRET, **options)
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        yield server, Place("127.0.0.1", port, SECRET)
    finally:
        server.close()
        thread.join()


def hello(
    model, nonce=None, fresh=True, sequence=0, launch=("", 0), shards=None, identity="", optimizer=None, rank=7
):
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=1.0)
    described = describe_optimizer(model, optimizer)
    return {
        "identity": identity,
        "nonce": nonce or secrets.token_hex(4),
        "sequence": sequence,
        "fresh": fresh,
        "launch": launch,
        "rank": rank,
        "parameters": describe_parameters(model),
        "optimizer": {key: described[key] for key in ("class", "groups")},
        "shards": shards,
    }


def attached(place, model, optimizer=None, shared=True, shards=None, **options):
    """A link that takes part; the first one brings the model."""
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=1.0)
    link = Link(place, hello(model, shards=shards, optimizer=optimizer, **options), shared)
    if link.state == "empty":
        link.bring(describe_optimizer(model, optimizer), list(model.parameters()), shards)
    assert link.state == "ready", link.text
    return link


def in_thread(call):
    """Runs it; join() gives what it returned or raises what it raised."""
    found = []

    def run():
        try:
            found.append((call(), None))
        except BaseException as error:
            found.append((None, error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def join():
        thread.join(60)
        assert found, "it has not ended"
        result, error = found[0]
        if error is not None:
            raise error
        return result

    return join


@pytest.fixture
def gate():
    Stepped.gate = Gate()
    yield Stepped.gate
    gate, Stepped.gate = Stepped.gate, None
    gate.go.release(1000)


def ones(model):
    return [torch.ones_like(one) for one in model.parameters()]


def values(parameters):
    return [one[0].item() for one in parameters.views]


def end_of(server, link, nonce):
    """Its worker dies; the server has seen it."""
    connection = next(one for one in server._attached if one.nonce == nonce)
    link.close()
    connection.join(60)
    assert not connection.is_alive()


class Told:
    """A worker that notes what it is told, with advice to begin again at some questions."""

    job, rank, policy = "job", 0, "specsync+asp"

    def __init__(self, advised_at=()):
        self.questions, self.advised_at, self.calls = 0, advised_at, []

    def mark(self):
        self.calls.append("mark")

    def should_resync(self):
        self.questions += 1
        return self.questions in self.advised_at

    def restarted(self):
        self.calls.append("restarted")

    def push(self, loss, samples, size):
        self.calls.append(("push", loss, samples, size))
        return syncd.Pushed(0, False)

    def leave(self, kind):
        if self.calls and self.calls[-1][0] == "leave":
            raise syncd.Closed("it has left", syncd.Status.E_CLOSED)
        self.calls.append(("leave", kind))


def job_of(model, place, policy="asp", worker=None, **options):
    optimizer = options.pop("optimizer", None) or torch.optim.SGD(model.parameters(), lr=1.0)
    job = st.run(policy, model, optimizer=optimizer, **options)
    job.worker = worker or Told()
    job._given = place
    job.iteration = 0
    return job


def step_of(iteration=0, pull=False, skip=False):
    return syncd.Step(iteration, pull, False, skip, False, 0)
