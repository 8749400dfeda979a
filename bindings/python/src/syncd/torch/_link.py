"""A worker's end of one connection to a parameter server."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import socket
import struct
import weakref
from typing import Any, Iterator, NamedTuple, Sequence

import torch

from ..errors import Error, Status, error_of
from ._parameters import HEADER, Layout
from ._wire import introduce, keep_alive, receive, receive_into, send

_CONNECT_S = 5.0
_PIECE_BYTES = 1 << 19
# Of reading a shard that is being changed; then the server copies it.
_TRIES = 2


class Place(NamedTuple):
    """Where a server is."""

    host: str
    port: int
    secret: bytes
    identity: str = ""
    """Of the job that it serves; the server refuses a worker that says another one."""

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


class NotFinite(Exception):
    """The gradient of parameter number `at` holds NaN or infinity."""

    def __init__(self, at: int) -> None:
        super().__init__(at)
        self.at = at


class Link:
    """A connection that has said hello: `state` is "ready", "empty" (bring() comes next) or "refused".

    timeout  seconds for each answer

    Raises BlockingIOError where the server does not answer in time, OSError and EOFError where no server
    is there or it ends, Error for another secret.
    """

    def __init__(
        self,
        place: Place,
        hello: dict[str, Any],
        use_shared_memory: bool = True,
        timeout: float = 60.0,
    ) -> None:
        self.place = place
        self.news: dict[str, Any] = {}
        self._described = hello["parameters"]
        self._is_local = False
        self._peer, greeting = _introduced(
            socket.create_connection((place.host, place.port), _CONNECT_S), place
        )
        try:
            if use_shared_memory:
                self._move(greeting["local"])
            # The kernel's, not Python's: that would make many calls of one.
            self._peer.settimeout(None)
            limit = struct.pack("ll", int(timeout), int(timeout % 1 * 1e6))
            for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
                self._peer.setsockopt(socket.SOL_SOCKET, option, limit)
            keep_alive(self._peer)
            send(self._peer, hello)
            self._take(receive(self._peer))
        except BaseException:
            self._peer.close()
            raise
        _open.add(self)

    def _move(self, local_name: str) -> None:
        """To the server's Unix socket, which is found on the same machine only."""
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
        if "error" in answer:
            raise error_of(
                Status.E_INVALID, f"the parameter server at {self.place}: {answer['error']}"
            )
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
        if self._is_local:
            self._check_connected()
        else:
            send(self._peer, ("pull",))
            self._hear()
        for shard, members in enumerate(self._layout.shards):
            if not self._is_local:
                self._receive(shard, parameters)
            elif not self._read(shard, parameters):
                send(self._peer, ("copy", shard))
                self._hear()
                _copy(members, self._staged, parameters)

    def _check_connected(self) -> None:
        """The memory outlives the server."""
        with contextlib.suppress(BlockingIOError):
            if not self._peer.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT):
                raise EOFError("the connection was closed")

    def _receive(self, shard: int, parameters: Sequence[torch.Tensor]) -> None:
        memory = memoryview(self._received)
        is_whole = bytearray(1)
        for _ in range(2):
            for members, part in self._pieces(self._layout.shards[shard]):
                direct = _memory_of(members, parameters)
                if direct is not None:
                    receive_into(self._peer, direct)
                    part = slice(part.start + len(direct), part.stop)
                receive_into(self._peer, memory[part])
                if direct is None:
                    _copy(members, self._values, parameters)
            receive_into(self._peer, memoryview(is_whole))
            if is_whole[0]:
                return

    def _pieces(self, members: range) -> Iterator[tuple[range, slice]]:
        """A large parameter alone; small ones together, as many as the processor's cache still holds when
        they are copied."""
        pending = range(members.start, members.start)
        for at in members:
            one = range(at, at + 1)
            with_it = range(pending.start, at + 1)
            if pending and self._layout.length(with_it) >= _PIECE_BYTES:
                yield pending, self._layout.bytes_of_range(pending)
                with_it = one
            pending = with_it
        yield pending, self._layout.bytes_of_range(pending)

    def _read(self, shard: int, parameters: Sequence[torch.Tensor]) -> bool:
        """From shared memory, straight into the parameters. False: updates come too fast for that."""
        if self._counters[0] != self.news["life"]:
            raise EOFError("the server has begun another life")
        for _ in range(_TRIES):
            before = self._counters[1 + shard]
            if before % 2 == 0:
                _copy(self._layout.shards[shard], self._values, parameters)
                if self._counters[1 + shard] == before:
                    return True
        return False

    def push(
        self,
        sequence: int,
        life: int,
        gradients: Sequence[torch.Tensor | None],
        options: list[dict[str, Any]],
    ) -> str:
        """One update. "applied", or "dropped": it was computed from parameters of another life.

        Raises NotFinite, and then nothing is applied.
        """
        message = ("push", sequence, life, bytes(one is not None for one in gradients), options)
        everything = range(len(self._staged))
        if self._is_local:
            self._stage(everything, gradients)
            send(self._peer, message)
        else:
            send(self._peer, message)
            memory = memoryview(self._segment)
            try:
                for members, part in self._pieces(everything):
                    direct = _memory_of(members, gradients)
                    if direct is None:
                        self._stage(members, gradients)
                    else:
                        _check_finite(members.start, gradients[members.start])
                        self._peer.sendall(direct)
                        part = slice(part.start + len(direct), part.stop)
                    self._peer.sendall(memory[part])
            except NotFinite:
                self.close()  # the server drops what has come
                raise
        outcome: str = self._hear()["outcome"]
        return outcome

    def _stage(self, members: range, gradients: Sequence[torch.Tensor | None]) -> None:
        for at in members:
            view, gradient = self._staged[at], gradients[at]
            if gradient is None:
                continue
            view.copy_(gradient.to_dense() if gradient.layout != torch.strided else gradient)
            _check_finite(at, view)

    def snapshot(self) -> dict[str, Any]:
        """What Parameters.snapshot() returns."""
        send(self._peer, ("snapshot",))
        found: dict[str, Any] = self._hear()["snapshot"]
        return found

    def finish(self) -> list[int]:
        """This worker sends nothing more. The ranks of others that still train."""
        send(self._peer, ("finish",))
        training: list[int] = self._hear()["training"]
        return training

    def _hear(self) -> dict[str, Any]:
        answer: dict[str, Any] = receive(self._peer)
        if "error" in answer:
            code = Status(answer.get("code", Status.E_INTERNAL))
            raise error_of(code, f"the parameter server at {self.place}: {answer['error']}")
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


def _check_finite(at: int, gradient: Any) -> None:
    total = gradient.sum().item()  # one pass; the sum of finite numbers may overflow
    if total - total != 0 and not torch.isfinite(gradient).all():
        raise NotFinite(at)


def _memory_of(members: range, tensors: Sequence[torch.Tensor | None]) -> memoryview | None:
    """The memory of a single large tensor, if it is as it is sent."""
    one = tensors[members.start]
    if len(members) > 1 or one is None or one.layout != torch.strided:
        return None
    size = one.numel() * one.element_size()
    if one.device.type != "cpu" or not one.is_contiguous() or size < _PIECE_BYTES:
        return None
    if one.is_conj() or one.is_neg():  # its memory has other numbers than it
        return None
    return memoryview((ctypes.c_char * size).from_address(one.data_ptr())).cast("B")
