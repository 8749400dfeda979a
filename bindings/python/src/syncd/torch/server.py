"""The parameter server: a process of its own.

    python -m syncd.torch.server --job mf --listen 0.0.0.0:7200

Worker 0 starts one by itself unless run() is given `server=`. By hand: workers are told by
`server="host:7200"`, and both sides need the same secret, a file that only its owner may read. The server
makes it where there is none, and workers look at the same place (`--secret`, `server_secret=`); copy it
where they have another home directory. Messages hold plain values and tensors, no
code; but whoever has the secret can change the parameters, and have the server import a module that lies on
its path.

It begins without parameters: the first worker brings them, from its model or from a checkpoint. Workers on
the same machine read and write shared memory, others use TCP, which is not encrypted.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import mmap
import os
import pathlib
import secrets
import select
import socket
import sys
import tempfile
import threading
import time
from typing import Any, Sequence

import torch

from .._private import private_directory, write_private
from ..errors import Error, Status, error_of
from ._parameters import Layout, Ledger, Parameters
from ._wire import accept_peer, keep_alive, receive, receive_into, send

_log = logging.getLogger("syncd")

# How long a server that a worker started lives without workers: after one has said that it ends, and
# after it was lost, so that it may come back.
_LINGER_S = 5.0
IDLE_S = 60.0
_HANDSHAKE_S = 10.0


def state_directory() -> pathlib.Path:
    """Where servers' addresses lie: $XDG_RUNTIME_DIR/syncd, else syncd-UID in the temporary directory."""
    base = os.environ.get("XDG_RUNTIME_DIR")
    path = pathlib.Path(base, "syncd") if base else pathlib.Path(tempfile.gettempdir(), f"syncd-{os.getuid()}")
    return private_directory(path, "XDG_RUNTIME_DIR")


def secret_file() -> pathlib.Path:
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return pathlib.Path(base, "syncd", "server.secret")


class _Connection(threading.Thread):
    """One worker's connection, and the memory through which its gradients come."""

    def __init__(self, server: Server, peer: socket.socket) -> None:
        super().__init__(daemon=True)
        self.peer = peer
        self.nonce = ""
        self.launch = ("", 0)
        self.identity = ""
        self.rank = -1
        self.has_finished = False
        self._server = server
        self._is_local = peer.family == socket.AF_UNIX
        self._parameters: Parameters | None = None
        self._segment: mmap.mmap
        self._gradients: list[torch.Tensor]

    def run(self) -> None:
        goodbye = False
        try:
            self.peer.settimeout(_HANDSHAKE_S)
            if not accept_peer(self.peer, self._server.secret):
                return
            self.peer.settimeout(None)
            keep_alive(self.peer)
            send(self.peer, {"local": self._server.local_name})
            if self._attach():
                while self._server.parameters is self._parameters:
                    request, *arguments = receive(self.peer)
                    goodbye = request == "bye"
                    if goodbye:
                        break
                    self._answer(request, *arguments)
        except (OSError, EOFError):
            pass  # the worker has died, or connects again
        except Error as error:
            with contextlib.suppress(OSError):
                send(self.peer, {"error": error.message})
        except Exception as error:
            _log.exception("a worker's request failed")
            with contextlib.suppress(OSError):
                send(self.peer, {"error": f"{type(error).__name__}: {error}"})
        finally:
            self.close()
            self._server.detach(self, goodbye)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.peer.shutdown(socket.SHUT_RDWR)
        self.peer.close()

    def _attach(self) -> bool:
        hello = receive(self.peer)
        self.nonce, self.launch = hello["nonce"], hello["launch"]
        self.identity, self.rank = hello["identity"], hello["rank"]
        layout = Layout(hello["parameters"], hello["shards"])
        found, text = self._server.attach(self, hello)
        if found is None and not text:
            send(self.peer, {"state": "empty"})
            begun = receive(self.peer)
            values = bytearray(layout.size)
            receive_into(self.peer, memoryview(values))
            found = self._server.found(self, layout, begun, values)
        if found is not None:
            text = (
                self._server.refusal(self)
                or layout.differs_from(found.layout)
                or found.differs_from(hello["optimizer"])
            )
        if found is None or text:
            send(self.peer, {"state": "refused", "text": text})
            return False
        found.told(self.nonce, hello["sequence"])
        self._parameters = found
        segment = os.memfd_create("syncd-gradients")
        try:
            os.truncate(segment, found.layout.size)
            self._segment = mmap.mmap(segment, found.layout.size)
            self._gradients = found.layout.views(self._segment)
            send(self.peer, {"state": "ready", "shards": len(found.shards), **self._news()})
            if self._is_local:
                socket.send_fds(self.peer, [b"m"], [found.descriptor, segment])
        finally:
            os.close(segment)
        return True

    def _news(self) -> dict[str, Any]:
        assert self._parameters is not None
        return {
            "life": self._parameters.life,
            "updates": self._parameters.updates,
            "lost_updates": self._parameters.lost_updates,
            "dropped_updates": self._parameters.dropped_updates,
        }

    def _answer(self, request: str, *arguments: Any) -> None:
        parameters = self._parameters
        assert parameters is not None
        try:
            if request == "push":
                if not self._is_local:
                    # Nothing is applied unless all has come.
                    receive_into(self.peer, memoryview(self._segment))
                sequence, life, present, options = arguments
                outcome = parameters.push(
                    self.nonce, sequence, life, self._gradients, present, options
                )
                send(self.peer, {"outcome": outcome, **self._news()})
            elif request == "copy":
                part = parameters.layout.bytes_of(arguments[0])
                parameters.copy(arguments[0], memoryview(self._segment)[part])
                send(self.peer, self._news())
            elif request == "pull":
                send(self.peer, self._news())
                for shard in range(len(parameters.shards)):
                    self._send_shard(parameters, shard)
            elif request == "finish":
                send(self.peer, {"training": self._server.training_beside(self), **self._news()})
            elif request == "snapshot":
                send(self.peer, {"snapshot": parameters.snapshot(), **self._news()})
        except Error as error:
            send(self.peer, {"error": error.message, "code": int(error.code)})

    def _send_shard(self, parameters: Parameters, shard: int) -> None:
        """The values, and a byte: 1, or 0 if they changed meanwhile and come once more, copied before."""
        part = parameters.layout.bytes_of(shard)
        before = parameters.counters[1 + shard]
        if before % 2 == 0:
            self.peer.sendall(parameters.values[part])
            is_whole = parameters.counters[1 + shard] == before
            self.peer.sendall(bytes([is_whole]))
            if is_whole:
                return
        copied = memoryview(self._segment)[part]
        parameters.copy(shard, copied)
        self.peer.sendall(copied)
        self.peer.sendall(b"\1")


class Server:
    """Accepts workers until none is left.

    listener  a TCP socket that listens
    secret    what workers must know
    ledger    of the numbers that outlive this process
    idle      seconds without workers after which serve() returns; None: never
    """

    def __init__(
        self,
        listener: socket.socket,
        secret: bytes,
        ledger: Ledger | None = None,
        idle: float | None = None,
    ) -> None:
        self.secret = secret
        self.parameters: Parameters | None = None
        self._listener = listener
        self._ledger = ledger
        self._idle = idle
        self._lock = threading.Lock()
        self._attached: set[_Connection] = set()
        self._bringing: set[_Connection] = set()  # that have been told that there are no parameters
        self._awaited: set[int] = set()  # ranks that trained when an earlier server was lost
        self._awaited_until = 0.0
        self._identity = ""  # of the job whose parameters these are
        self._ends_at: float | None = None
        # In the abstract namespace: no file stays behind, and who connects must know the secret.
        self.local_name = f"\0syncd-server-{secrets.token_hex(8)}"
        self._local = socket.socket(socket.AF_UNIX)
        self._local.bind(self.local_name)
        self._local.listen(64)
        self._woken, self._wake = socket.socketpair()
        self._wait_for_workers(idle)

    def serve(self) -> None:
        with self._listener, self._local:
            self._serve()

    def _serve(self) -> None:
        sources = [self._listener, self._local, self._woken]
        while True:
            with self._lock:
                end = None if self._attached or self._bringing else self._ends_at
            left = None if end is None else max(0.0, end - time.monotonic())
            if left == 0.0:
                return
            ready, _, _ = select.select(sources, [], [], left)
            if self._woken in ready and not self._woken.recv(64):
                return
            for source in (self._listener, self._local):
                if source in ready:
                    with contextlib.suppress(OSError):
                        _Connection(self, source.accept()[0]).start()

    def close(self) -> None:
        """Ends serve(), and closes every connection. Any thread."""
        self._wake.close()
        with self._lock:
            attached = list(self._attached)
        for connection in attached:
            connection.close()

    def attach(
        self, connection: _Connection, hello: dict[str, Any]
    ) -> tuple[Parameters | None, str]:
        """The parameters for a worker that says hello. None: it may bring them; with a text: it is refused.

        A new process takes the parameters only while others train with them: once all are gone, the
        training of a new group begins with what its worker 0 brings.
        """
        with self._lock:
            if (self._attached or not hello["fresh"]) and (text := self.refusal(connection)):
                return None, text
            others = self._others(connection)
            name, number = connection.launch
            for one in others:
                if one.launch[0] == name and one.launch[1] > number:
                    return (
                        None,
                        f"launch {name}/{one.launch[1]} has taken the place of {name}/{number}",
                    )
            if self.parameters is None or (hello["fresh"] and not others):
                self._bringing.add(connection)  # which may first load them
                return None, ""
            self._add(connection)
            return self.parameters, ""

    def _add(self, connection: _Connection) -> None:
        self._bringing.discard(connection)
        self._attached.add(connection)
        self._awaited.discard(connection.rank)

    def found(
        self, connection: _Connection, layout: Layout, begun: dict[str, Any], values: bytearray
    ) -> Parameters:
        """A worker has brought parameters. If another was first, they are that one's."""

        def fill(memory: memoryview) -> None:
            memory[:] = values

        with self._lock:
            if self.parameters is None or not self._others(connection):
                older, self.parameters = self.parameters, Parameters(
                    layout, begun, fill, self._ledger
                )
                self._identity = connection.identity
                self._awaited = set(begun.get("workers", ()))
                self._awaited_until = time.monotonic() + IDLE_S
                if older is not None:
                    older.close()
                lost = self.parameters.lost_updates
                _log.info(
                    "life %x begins with %d updates%s",
                    self.parameters.life,
                    self.parameters.updates,
                    f"; {lost} were lost" if lost else "",
                )
            self._add(connection)
            return self.parameters

    def refusal(self, connection: _Connection) -> str:
        """Why this worker may not take the parameters; "": it may."""
        if self.parameters is None or connection.identity == self._identity:
            return ""
        return (
            f"it trains another job now: {self._identity}, and this worker is of {connection.identity}; "
            "allowed: a server for each job, and a name for each job (job=)"
        )

    def _others(self, connection: _Connection) -> list[_Connection]:
        """Other workers that train now. Those of an older launch do no longer."""
        for one in list(self._attached):
            if one.launch[0] == connection.launch[0] and one.launch < connection.launch:
                self._attached.discard(one)
                one.close()
        return [one for one in self._attached if one.nonce != connection.nonce]

    def training_beside(self, connection: _Connection) -> list[int]:
        """The ranks of other workers that have not finished, now that this one has. Those of a lost server
        have some time to come to this one."""
        with self._lock:
            connection.has_finished = True
            training = {one.rank for one in self._others(connection) if not one.has_finished}
            if time.monotonic() < self._awaited_until:
                training |= self._awaited
            return sorted(training)

    def detach(self, connection: _Connection, goodbye: bool) -> None:
        with self._lock:
            if connection in self._bringing:  # and has not brought them
                self._bringing.discard(connection)
                self._wait_for_workers(self._idle)
            if connection not in self._attached:
                return
            self._attached.discard(connection)
            if not self._attached:
                self._wait_for_workers(_LINGER_S if goodbye and self._idle else self._idle)

    def _wait_for_workers(self, seconds: float | None) -> None:
        self._ends_at = None if seconds is None else time.monotonic() + seconds
        with contextlib.suppress(OSError):
            self._wake.send(b"w")


def open_ledger(path: pathlib.Path) -> Ledger:
    """Its numbers survive this process, not the machine."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        os.truncate(descriptor, 16)
        return Ledger(mmap.mmap(descriptor, 16))
    finally:
        os.close(descriptor)


def _listen(given: str) -> socket.socket:
    host, _, port = given.rpartition(":")
    if not port.isdigit():
        raise error_of(Status.E_INVALID, f"--listen {given}; allowed: HOST:PORT")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host.strip("[]"), int(port)), family=family)
    except (OSError, OverflowError) as error:
        text = getattr(error, "strerror", None) or error
        raise error_of(
            Status.E_INVALID,
            f"--listen {given}: {text}; allowed: an address of this machine and a port that is free, or 0",
        ) from None


def _read_secret(path: str) -> bytes:
    if path == "-":
        return bytes.fromhex(sys.stdin.readline().strip())
    file = pathlib.Path(path)
    if not file.exists():
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(file, secrets.token_hex(32) + "\n")
    return load_secret(file)


def load_secret(file: pathlib.Path) -> bytes:
    """Raises Error (SYNCD_E_AUTH) if others may read the file, or it holds no secret."""
    try:
        if file.stat().st_mode & 0o077:
            raise ValueError("its mode lets others read it; allowed: 0600")
        secret = bytes.fromhex(file.read_text().strip())
        if len(secret) < 16:
            raise ValueError("it is shorter than 16 bytes in hexadecimal digits")
        return secret
    except (OSError, ValueError) as error:
        raise error_of(
            Status.E_AUTH, f"the secret of the parameter server, {file}: {error}"
        ) from error


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m syncd.torch.server", description="A parameter server for syncd.torch.run()."
    )
    parser.add_argument("--job", required=True, help="for the log, and the count of lost updates")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--listen", metavar="HOST:PORT", help="for workers' connections")
    where.add_argument("--fd", type=int, help=argparse.SUPPRESS)
    parser.add_argument(
        "--secret", metavar="FILE", default=str(secret_file()), help="default: %(default)s"
    )
    parser.add_argument(
        "--idle",
        type=float,
        metavar="SECONDS",
        help="end after so long without workers; default: never",
    )
    parser.add_argument("--state", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    logging.basicConfig(
        level=logging.INFO, format=f"%(asctime)s syncd server of {options.job}: %(message)s"
    )
    sys.setswitchinterval(0.0005)
    torch.set_num_threads(1)  # of one shard
    try:
        secret = _read_secret(options.secret)
        if options.fd is not None:
            listener = socket.socket(fileno=options.fd)
        else:
            listener = _listen(options.listen)
        state = pathlib.Path(options.state or state_directory() / f"server-of-{options.job}")
        server = Server(
            listener, secret, open_ledger(pathlib.Path(f"{state}.updates")), options.idle
        )
    except (Error, OSError, ValueError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    _log.info("listening at %s:%d", *listener.getsockname()[:2])
    with contextlib.suppress(KeyboardInterrupt):
        server.serve()
    return 0


if __name__ == "__main__":
    sys.exit(main())
