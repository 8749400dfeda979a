"""Parts of a parameter server that a test steps."""

import contextlib
import secrets
import socket
import threading

import torch

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
