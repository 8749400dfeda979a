"""Messages between workers and a parameter server, and the proof that both know the same secret."""

from __future__ import annotations

import ctypes
import hmac
import io
import math
import pickle
import secrets
import socket
import struct
from typing import Any

import torch

from ..errors import Status, error_of

_NONCE = 32
_LENGTH = struct.Struct("!Q")
# One call of the kernel takes at most 2 GiB.
_CALL_BYTES = 1 << 30


def send(to: socket.socket, message: Any) -> None:
    written = io.BytesIO()
    _Writer(written, protocol=4).dump(message)
    data = written.getvalue()
    to.sendall(_LENGTH.pack(len(data)) + data)


def receive(source: socket.socket) -> Any:
    """Raises pickle.UnpicklingError for a message with anything but plain values and tensors."""
    length = bytearray(_LENGTH.size)
    receive_into(source, memoryview(length))
    data = bytearray(_LENGTH.unpack(length)[0])
    receive_into(source, memoryview(data))
    return _Reader(io.BytesIO(data)).load()


class _Writer(pickle.Pickler):
    def persistent_id(self, value: Any) -> tuple[str, tuple[int, ...], bytes] | None:
        """A tensor as plain values: what torch makes of it, unpickling would have to call."""
        if not isinstance(value, torch.Tensor):
            return None
        dense = value.detach().to_dense() if value.layout != torch.strided else value.detach()
        whole = dense.cpu().contiguous()
        data = ctypes.string_at(whole.data_ptr(), whole.numel() * whole.element_size())
        return str(whole.dtype).rpartition(".")[2], tuple(whole.shape), data


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(
            f"a value of type {module}.{name}; allowed: numbers, text, bytes, None, tensors, and lists, tuples "
            "and dictionaries of them"
        )

    def persistent_load(self, found: Any) -> torch.Tensor:
        name, shape, data = found
        dtype = getattr(torch, name)
        if not isinstance(dtype, torch.dtype):
            raise pickle.UnpicklingError(f"a tensor of type {name}")
        if not math.prod(shape):
            return torch.empty(shape, dtype=dtype)
        return torch.frombuffer(bytearray(data), dtype=dtype).reshape(shape)


def receive_into(source: socket.socket, target: memoryview) -> None:
    """Raises EOFError when the peer has closed before all was there."""
    while target:
        count = source.recv_into(target[:_CALL_BYTES], 0, socket.MSG_WAITALL)
        if count == 0:
            raise EOFError("the connection was closed")
        target = target[count:]


def _proof(secret: bytes, who: bytes, first: bytes, second: bytes) -> bytes:
    return hmac.digest(secret, who + first + second, "sha256")


def accept_peer(peer: socket.socket, secret: bytes) -> bool:
    """The server's side. Whether the peer knows the secret."""
    mine = secrets.token_bytes(_NONCE)
    peer.sendall(mine)
    answer = bytearray(2 * _NONCE)
    receive_into(peer, memoryview(answer))
    theirs, proof = bytes(answer[:_NONCE]), bytes(answer[_NONCE:])
    if not hmac.compare_digest(proof, _proof(secret, b"worker", mine, theirs)):
        peer.sendall(bytes(_NONCE))
        return False
    peer.sendall(_proof(secret, b"server", mine, theirs))
    return True


def introduce(peer: socket.socket, secret: bytes, where: str) -> None:
    """The worker's side. Raises Error (SYNCD_E_AUTH) if the server has another secret."""
    theirs = bytearray(_NONCE)
    receive_into(peer, memoryview(theirs))
    mine = secrets.token_bytes(_NONCE)
    peer.sendall(mine + _proof(secret, b"worker", bytes(theirs), mine))
    proof = bytearray(_NONCE)
    receive_into(peer, memoryview(proof))
    if not hmac.compare_digest(proof, _proof(secret, b"server", bytes(theirs), mine)):
        raise error_of(
            Status.E_AUTH,
            f"the parameter server at {where} has another secret than this worker; allowed: the file that "
            "the server was started with, as server_secret=FILE",
        )


def keep_alive(peer: socket.socket) -> None:
    """A peer whose machine is gone is noticed within half a minute."""
    if peer.family == socket.AF_UNIX:
        return
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in [("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)]:
        if hasattr(socket, option):
            peer.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
