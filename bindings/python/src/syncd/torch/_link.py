"""A worker's end of one connection to a parameter server."""

from __future__ import annotations

import contextlib
import mmap
import os
import socket
import weakref
from typing import Any, NamedTuple, Sequence

import torch

from ..errors import Error, Status, error_of
from ._parameters import HEADER, Layout
from ._wire import introduce, keep_alive, receive, receive_into, send
from .server import boot_id

_CONNECT_S = 5.0
# Of reading a shard that is being changed; then the server copies it.
_TRIES = 2


class Place(NamedTuple):
    """Where a server is."""

    host: str
    port: int
    secret: bytes

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def _introduced(peer: socket.socket, place: Place) -> tuple[socket.socket, dict[str, Any]]:
    """The peer, and the server's greeting."""
    try:
        introduce(peer, place.secret, str(place))
        return peer, receive(peer)
    except BaseException:
        peer.close()
        raise


def is_live(place: Place) -> bool:
    """True if a server with this secret answers there."""
    try:
        peer = socket.create_connection((place.host, place.port), _CONNECT_S)
        _introduced(peer, place)[0].close()
        return True
    except (OSError, EOFError, Error):
        return False


_open: weakref.WeakSet[Link] = weakref.WeakSet()


def _forked() -> None:
    """A child, such as a DataLoader's, must not keep a dead worker's connection open."""
    for link in list(_open):
        link.close()


os.register_at_fork(after_in_child=_forked)


class Link:
    """A connection that has said hello: `state` is "ready", "empty" (bring() comes next) or "refused".

    Raises OSError and EOFError where no server is there or it ends, Error for another secret.
    """

    def __init__(self, place: Place, hello: dict[str, Any], use_shared_memory: bool = True) -> None:
        self.place = place
        self.news: dict[str, Any] = {}
        self._described = hello["parameters"]
        self._is_local = False
        self._peer, greeting = _introduced(
            socket.create_connection((place.host, place.port), _CONNECT_S), place
        )
        try:
            if use_shared_memory and greeting["boot"] == boot_id():
                self._move(greeting["local"])
            self._peer.settimeout(None)
            keep_alive(self._peer)
            send(self._peer, hello)
            self._take(receive(self._peer))
        except BaseException:
            self._peer.close()
            raise
        _open.add(self)

    def _move(self, local_name: str) -> None:
        """To the server's Unix socket; a container of the same machine may not reach it."""
        local = socket.socket(socket.AF_UNIX)
        local.settimeout(_CONNECT_S)
        try:
            local.connect(local_name)
        except OSError:
            local.close()
            return
        self._peer.close()
        self._peer, _ = _introduced(local, self.place)
        self._is_local = True

    def _take(self, answer: dict[str, Any]) -> None:
        self.state: str = answer["state"]
        self.text: str = answer.get("text", "")
        if self.state != "ready":
            return
        self.news = answer
        self._layout = Layout(self._described, answer["shards"])
        size = self._layout.size
        if self._is_local:
            _, descriptors, _, _ = socket.recv_fds(self._peer, 1, 2)
            values, segment = descriptors
            shared = mmap.mmap(values, HEADER + size)
            self._segment = mmap.mmap(segment, size)
            os.close(values)
            os.close(segment)
            self._counters = memoryview(shared)[:HEADER].cast("Q")
            self._values = self._layout.views(shared, HEADER)
        else:
            self._segment = mmap.mmap(-1, size)
            self._received = mmap.mmap(-1, size)
            self._values = self._layout.views(self._received)
        self._staged = self._layout.views(self._segment)

    def bring(
        self, begun: dict[str, Any], parameters: Sequence[torch.Tensor], shards: int | None
    ) -> None:
        """The parameters with which the server begins."""
        layout = Layout(self._described, shards)
        values = mmap.mmap(-1, layout.size)
        for view, parameter in zip(layout.views(values), parameters):
            view.copy_(parameter.detach())
        send(self._peer, begun)
        self._peer.sendall(values)
        self._take(receive(self._peer))

    def pull(self, parameters: Sequence[torch.Tensor]) -> None:
        """Copies the server's parameters into these: each shard as it is between two updates."""
        if not self._is_local:
            send(self._peer, ("pull",))
            self._hear()
        for shard, members in enumerate(self._layout.shards):
            if self._is_local:
                source = self._read(shard, parameters)
            else:
                receive_into(self._peer, memoryview(self._received)[self._layout.bytes_of(shard)])
                source = self._values
            if source is not None:
                _copy(members, source, parameters)

    def _read(
        self, shard: int, parameters: Sequence[torch.Tensor]
    ) -> Sequence[torch.Tensor] | None:
        """From shared memory, straight into the parameters. Where updates come too fast for that the
        server copies, in between, to where it is returned."""
        if self._counters[0] != self.news["life"]:
            raise EOFError("the server has begun another life")
        members = self._layout.shards[shard]
        for _ in range(_TRIES):
            before = self._counters[1 + shard]
            if before % 2 == 0:
                _copy(members, self._values, parameters)
                if self._counters[1 + shard] == before:
                    return None
        send(self._peer, ("copy", shard))
        self._hear()
        return self._staged

    def stage(self, gradients: Sequence[torch.Tensor | None]) -> int | None:
        """Takes gradients for push(). The index of one that is not finite; None: all are."""
        for at, (view, gradient) in enumerate(zip(self._staged, gradients)):
            if gradient is None:
                continue
            view.copy_(gradient.to_dense() if gradient.layout != torch.strided else gradient)
            # One pass; the sum of finite numbers may overflow.
            if not _is_finite(view.sum().item()) and not torch.isfinite(view).all():
                return at
        return None

    def push(self, sequence: int, life: int, present: bytes, options: list[dict[str, Any]]) -> str:
        """Sends what stage() took. "applied" or "dropped"."""
        send(self._peer, ("push", sequence, life, present, options))
        if not self._is_local:
            self._peer.sendall(self._segment)
        outcome: str = self._hear()["outcome"]
        return outcome

    def snapshot(self) -> dict[str, Any]:
        send(self._peer, ("snapshot",))
        return self._hear()

    def _hear(self) -> dict[str, Any]:
        answer: dict[str, Any] = receive(self._peer)
        if "error" in answer:
            raise error_of(Status.E_INTERNAL, answer["error"])
        self.news.update((key, answer[key]) for key in self.news if key in answer)
        return answer

    def say_goodbye(self) -> None:
        with contextlib.suppress(OSError):
            send(self._peer, ("bye",))

    def close(self) -> None:
        self._peer.close()


def _copy(
    members: range, source: Sequence[torch.Tensor], parameters: Sequence[torch.Tensor]
) -> None:
    with torch.no_grad():
        for at in members:
            parameters[at].copy_(source[at])


def _is_finite(number: complex) -> bool:
    return number - number == 0
