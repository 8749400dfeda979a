"""Updates from neighbour to neighbour: through shared memory on one machine, else over TCP.

Each worker writes an update once, into its outbox: an update queue in shared memory. To each target it
has a connection, over which it first says hello. A target on the same machine maps the outbox and reads
there; the connection then only says when the sender has ended. To any other, a thread sends from the
outbox, and the target's thread puts what has arrived whole into a queue of its own.

A *life* is one process of a worker, by a random number that it shows in its join data; `generation` counts
how often it began anew within that. A target takes a hello only of the life that the daemon names now,
and closes the connection of an older one first. What that one still writes or sends is in a queue which
nobody reads any more. A sender waits for the answer to its hello before it goes on, hence before the push
that makes anybody look for its update.

Nothing here knows of torch.
"""

from __future__ import annotations

import collections
import contextlib
import errno
import json
import logging
import os
import secrets
import socket
import struct
import threading
import time
import weakref
from typing import Any, Callable, Iterable, NamedTuple

from . import _same_machine
from ._values import Member, MemberState, Members
from .errors import Error, Status
from .update_queue import UpdateQueue

_log = logging.getLogger("syncd")

_MAGIC = b"syncdup1"
# Magic, what is wanted, life of the target, own life, schema, place, own rank, generation, and the outbox:
# process, descriptor, device, inode.
_HELLO = struct.Struct("!8sB16s16s16s16siIiiQQ")
_FRAME = struct.Struct("!qQ")  # iteration, bytes that follow
_UPDATES, _STATE, _INITIAL = 1, 2, 3
_SHARED, _STREAM, _REFUSED = b"s", b"t", b"r"

_CONNECT_S = 5.0  # for a connection, and for the answer to a hello
_PAUSE_FIRST_S, _PAUSE_MAX_S = 0.25, 10.0  # before a target that does not answer is tried again
_STRANGERS = 64  # connections that have not said hello; of more, the oldest is closed
_LOOK_S = 0.2  # how often the daemon is asked about a sender that is waited for
_SAY_S = 10.0
_INITIAL_UNTIL = (
    100  # so many iterations those are kept with which this worker began, for who begins as well
)
_ADOPTED = -1  # the iteration of parameters that were taken over, and none sent since


class Card(NamedTuple):
    """What a worker shows to the others in its join data."""

    life: bytes
    host: str
    port: int
    place: bytes
    schema: bytes
    """Of the parameters: updates go only between equal ones."""
    about: str
    """The schema for people."""

    def encode(self) -> bytes:
        shown = {"life": self.life.hex(), "place": self.place.hex(), "schema": self.schema.hex()}
        return json.dumps({**self._asdict(), **shown}).encode()

    @classmethod
    def decode(cls, data: bytes) -> Card | None:
        """None: this is no neighbour's data."""
        try:
            given = json.loads(data)
            for name in ("life", "place", "schema"):
                given[name] = bytes.fromhex(given[name])
            return cls(**given)
        except (ValueError, TypeError, KeyError):
            return None


class Peer:
    """A sender, as its target knows it: one generation of one life."""

    def __init__(
        self, life: bytes, generation: int, queue: UpdateQueue, connection: socket.socket
    ) -> None:
        self.life = life
        self.generation = generation
        self.queue = queue
        self.ended = False
        self.connection = connection

    def end(self) -> None:
        """Under the exchange's lock. Its thread ends; what it has put into its queue stays readable."""
        if not self.ended:  # else its thread may have closed the connection
            self.ended = True
            _shut(self.connection)


class _Edge:
    """A target, as its sender knows it. The connection's own lock guards `queued`."""

    def __init__(self, card: Card, generation: int) -> None:
        self.card = card
        self.generation = generation
        self.connection: socket.socket | None = None
        self.thread: threading.Thread | None = None  # sends over it
        self.answer = b""
        self.queued: collections.deque[int] = collections.deque()
        self.changed = threading.Condition()
        self.fresh = True  # nothing was queued
        self.sending = False
        self.dead = False

    def is_open(self) -> bool:
        """Whether the target has not closed it."""
        if self.dead or self.connection is None:
            return False
        try:
            return self.connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) != b""
        except BlockingIOError:
            return True
        except OSError:
            return False

    def close(self) -> None:
        """The number of a connection that is closed may be another's at once: its thread ends first."""
        with self.changed:
            self.dead = True
            self.changed.notify_all()
        if self.connection is not None:
            _shut(self.connection)
            if self.thread is not None:
                self.thread.join()
            self.connection.close()


_exchanges: weakref.WeakSet[Exchange] = weakref.WeakSet()


def _close_in_child() -> None:
    """A child, such as a data loader's, would keep a dead worker's connections open."""
    for exchange in list(_exchanges):
        exchange._close_sockets()


os.register_at_fork(after_in_child=_close_in_child)


class Exchange:
    """A worker's side of the exchange: its outbox, what others have sent, and the threads of both.

    payload_bytes, slots  of an update, and how many of each sender are kept
    schema, about         Card's
    host                  at which others reach this process
    timeout               seconds that an update which was pushed may take to arrive
    shared                False: TCP on one machine, too

    send(), read() and start_over() are the training thread's.
    """

    def __init__(
        self,
        payload_bytes: int,
        slots: int,
        schema: bytes,
        about: str,
        host: str,
        timeout: float,
        shared: bool = True,
    ) -> None:
        self._payload_bytes = payload_bytes
        # One more, so that there is a whole one while the next is written.
        self._slots = slots + 1
        self._timeout = timeout
        self._place = _same_machine.place() if shared else secrets.token_bytes(16)
        self._generation = 0
        self._members: Callable[[], Members]
        self._who = ""
        self._rank = -1
        self._started = threading.Event()
        self._closed = False
        self.members_changed = False  # set by any thread
        self._outbox = UpdateQueue.create(1, self._slots, payload_bytes)
        self._adopted: bytes | None = None
        self._peers: dict[int, Peer] = {}
        self._changed = threading.Condition()
        self._strangers: dict[socket.socket, None] = {}  # have not said hello, the oldest first
        self._edges: dict[int, _Edge] = {}
        self._pauses: dict[int, tuple[float, float]] = {}  # until when, and how long
        dual = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if dual else socket.AF_INET
        self._server = socket.create_server(("", 0), family=family, dualstack_ipv6=dual)
        port = self._server.getsockname()[1]
        self.card = Card(secrets.token_bytes(16), host, port, self._place, schema, about)
        _exchanges.add(self)
        self._thread(self._accept)

    def start(self, rank: int, who: str, members: Callable[[], Members]) -> None:
        """Once this worker has joined. members: any thread calls it."""
        self._rank, self._who, self._members = rank, who, members
        self._started.set()

    def flush(self, seconds: float) -> None:
        """Waits until all that is queued was sent."""
        until = time.monotonic() + seconds
        for edge in self._edges.values():
            with edge.changed:
                edge.changed.wait_for(
                    lambda: edge.dead or not (edge.queued or edge.sending),
                    max(0.0, until - time.monotonic()),
                )

    def close(self) -> None:
        self._closed = True
        self._started.set()
        _shut(self._server)
        for edge in self._edges.values():
            edge.close()
        with self._changed:
            for peer in self._peers.values():
                peer.end()
            for stranger in self._strangers:
                _shut(stranger)
            self._changed.notify_all()

    def _close_sockets(self) -> None:
        connections = [edge.connection for edge in self._edges.values()]
        connections += [peer.connection for peer in self._peers.values()]
        for one in [self._server, *self._strangers, *connections]:
            if one is not None:
                one.close()

    def _thread(self, run: Callable[..., None], *arguments: Any) -> threading.Thread:
        made = threading.Thread(target=run, args=arguments, name="syncd-exchange", daemon=True)
        made.start()
        return made

    # ---- Who is there

    def cards(self) -> dict[int, tuple[Member, Card]]:
        """Of the members that are there, this one included."""
        found = {}
        for member in self._members().members:
            card = Card.decode(member.data)
            if card is not None and member.state in (MemberState.ACTIVE, MemberState.DISCONNECTED):
                found[member.rank] = (member, card)
        return found

    # ---- The training thread sends

    def adopt(self, payload: Any) -> None:
        """What this worker gives to others until it has sent an update, and to those that begin with iteration 0:
        parameters that it has taken over."""
        self._adopted = bytes(payload)

    def start_over(self) -> None:
        """This worker may repeat iterations: what it sent before must not be taken for new."""
        self._generation += 1
        self._adopted = None
        # A new one, because others may still read the old one.
        self._outbox = UpdateQueue.create(1, self._slots, self._payload_bytes)

    def send(self, iteration: int, targets: Iterable[int], payload: Any) -> None:
        """Returns when all targets can read the update, or it is queued for them. One that does not answer
        is tried again with a later update."""
        self._outbox.write(0, iteration, payload)
        if iteration >= _INITIAL_UNTIL:
            self._adopted = None
        cards: dict[int, tuple[Member, Card]] | None = None
        if self.members_changed:
            self.members_changed = False
            cards = self.cards()
            for rank, edge in list(self._edges.items()):
                if rank not in cards or cards[rank][1].life != edge.card.life:
                    self._edges.pop(rank).close()
            with self._changed:  # nobody collects what one has sent that has gone
                for rank in [rank for rank, one in self._peers.items() if one.ended]:
                    if rank not in cards:
                        del self._peers[rank]
        for rank in targets:
            known = self._edges.get(rank)
            if known is not None and (known.generation != self._generation or not known.is_open()):
                self._edges.pop(rank).close()
                known = None
            try:
                if known is None:
                    if self._pauses.get(rank, (0.0, 0.0))[0] > time.monotonic():
                        continue
                    cards = self.cards() if cards is None else cards
                    if rank not in cards:
                        continue  # it has gone
                    known = self._connect(rank, cards[rank][1])
                    self._take_answer(rank, known, _CONNECT_S)
                elif not known.answer:
                    self._take_answer(rank, known, 0.0)
            except OSError as error:
                self._pause(rank, error)
                continue
            if known.answer:
                self._pauses.pop(rank, None)
                self._queue(known, iteration)

    def _queue(self, edge: _Edge, iteration: int) -> None:
        if edge.answer == _SHARED:
            return
        with edge.changed:
            edge.changed.wait_for(
                lambda: edge.dead or len(edge.queued) < self._slots - 1, self._timeout
            )
            # At first also those that may be waited for, and could not be sent.
            first = max(0, iteration - self._slots + 2) if edge.fresh else iteration
            edge.fresh = False
            edge.queued.extend(range(first, iteration + 1))
            edge.changed.notify_all()

    def _connect(self, rank: int, card: Card) -> _Edge:
        edge = self._edges[rank] = _Edge(card, self._generation)
        edge.connection = self._call(card)
        edge.connection.sendall(self._hello(_UPDATES, card))
        return edge

    def _pause(self, rank: int, error: OSError) -> None:
        edge = self._edges.pop(rank)
        edge.close()
        pause = min(2 * self._pauses.get(rank, (0.0, _PAUSE_FIRST_S / 2))[1], _PAUSE_MAX_S)
        self._pauses[rank] = (time.monotonic() + pause, pause)
        where = f"{edge.card.host}:{edge.card.port}"
        # At first it may be one that has died just now.
        level = logging.INFO if pause < 1 else logging.WARNING
        _log.log(level, "%s cannot send to worker %d at %s: %s", self._who, rank, where, error)

    def _call(self, card: Card) -> socket.socket:
        hosts = ["127.0.0.1", card.host] if card.place == self._place else [card.host]
        for host in hosts:
            try:
                connection = socket.create_connection((host, card.port), _CONNECT_S)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                return connection
            except OSError:
                if host == hosts[-1]:
                    raise
        raise AssertionError

    def _hello(self, kind: int, card: Card) -> bytes:
        return _HELLO.pack(
            _MAGIC,
            kind,
            card.life,
            self.card.life,
            self.card.schema,
            self._place,
            self._rank,
            self._generation,
            *_same_machine.where(self._outbox.fileno()),
        )

    def _take_answer(self, rank: int, edge: _Edge, seconds: float) -> None:
        """If there is none yet, the target's process may be stopped: this worker goes on without it."""
        connection = edge.connection
        assert connection is not None
        connection.settimeout(seconds)
        try:
            answer = connection.recv(1)
        except (BlockingIOError, socket.timeout):
            if seconds:
                _log.warning("%s: worker %d does not answer", self._who, rank)
            return
        finally:
            connection.settimeout(None)
        if answer not in (_SHARED, _STREAM):
            raise ConnectionRefusedError(
                errno.ECONNREFUSED, "it does not take updates of this worker"
            )
        edge.answer = answer
        if answer == _STREAM:
            edge.thread = self._thread(self._stream, edge, self._outbox)

    def _stream(self, edge: _Edge, outbox: UpdateQueue) -> None:
        buffer = bytearray(self._payload_bytes)
        try:
            while True:
                with edge.changed:
                    edge.sending = False
                    edge.changed.notify_all()
                    edge.changed.wait_for(lambda: edge.dead or edge.queued)
                    if edge.dead:
                        return
                    iteration = edge.queued.popleft()
                    edge.sending = True
                    edge.changed.notify_all()
                try:
                    outbox.read(0, iteration, buffer)
                except Error:
                    continue  # never written, or overwritten: the target has gone on without it
                assert edge.connection is not None
                edge.connection.sendall(_FRAME.pack(iteration, len(buffer)))
                edge.connection.sendall(buffer)
        except OSError as error:
            if not edge.dead:
                _log.info("%s: a target has closed its connection: %s", self._who, error)
        finally:
            with edge.changed:
                edge.dead = True
                edge.changed.notify_all()

    # ---- The training thread receives

    def peers(self) -> dict[int, Peer]:
        """Who has sent, as of now: for read()."""
        with self._changed:
            return dict(self._peers)

    def read(self, rank: int, iteration: int, into: Any, peers: dict[int, Peer]) -> bool:
        """Copies an update that collect() has named out. Waits until it is whole; False: its sender was lost
        before, or it did not come within the timeout.

        peers: peers() when collect() had answered. Who sent has said hello before its push, so that the update
        is of that life.
        """
        peer = peers.get(rank)
        if peer is not None and peer.ended and not self._is_life(rank, peer.life):
            peer = None  # of a life before the one that has pushed, whose hello is on its way
        now = time.monotonic()
        until, say_at = now + self._timeout, now + _SAY_S
        while True:
            if peer is None:
                peer = self.peers().get(rank)
                if peer is not None and peer.ended:
                    peer = None
            if peer is not None:
                found = _try_read(peer.queue, iteration, into)
                if found is not None:
                    return found
                if peer.ended:
                    # What came before the end was put into the queue before that was noted.
                    return _try_read(peer.queue, iteration, into) or False
            elif rank not in self.cards():
                return False
            now = time.monotonic()
            if now >= until or self._closed:
                _log.warning(
                    "%s goes on without iteration %d of worker %d, which has not come in %g s",
                    self._who,
                    iteration,
                    rank,
                    self._timeout,
                )
                return False
            if now >= say_at:
                say_at = now + _SAY_S
                _log.info("%s waits for iteration %d of worker %d", self._who, iteration, rank)
            with self._changed:
                if peer is None or (not peer.ended and peer.queue.newest(0) < iteration):
                    self._changed.wait(min(_LOOK_S, until - now))

    def _is_life(self, rank: int, life: bytes) -> bool:
        shown = self.cards().get(rank)
        return shown is None or shown[1].life == life

    def ask(self, rank: int, card: Card, into: Any, initial: bool = False) -> int | None:
        """Another worker's parameters: those that it sent last, with their iteration, or those that it has
        taken over, with -1. None: it has none yet, or does not answer.

        initial: rather the latter, as long as it has them
        """
        view = memoryview(into).cast("B")
        try:
            with self._call(card) as connection:
                connection.sendall(self._hello(_INITIAL if initial else _STATE, card))
                header = memoryview(bytearray(_FRAME.size))
                _receive(connection, header)
                iteration, size = _FRAME.unpack(header)
                if size != self._payload_bytes:
                    return None
                _receive(connection, view)
                return int(iteration)
        except OSError as error:
            _log.info("%s: worker %d gives no parameters: %s", self._who, rank, error)
            return None

    # ---- Threads of what comes in

    def _accept(self) -> None:
        with self._server:
            self._accept_all()

    def _accept_all(self) -> None:
        while True:
            try:
                connection = self._server.accept()[0]
            except OSError:
                if self._closed:
                    return
                time.sleep(0.05)  # no descriptors are left
                continue
            with self._changed:
                if self._closed:
                    connection.close()
                    return
                self._strangers[connection] = None
                if len(self._strangers) > _STRANGERS:
                    # Not the newest: a member says hello at once.
                    oldest = next(iter(self._strangers))
                    del self._strangers[oldest]
                    _shut(oldest)
            try:
                self._thread(self._serve, connection)
            except RuntimeError as error:  # no thread can be started
                _log.warning("%s refuses a connection: %s", self._who, error)
                with self._changed:
                    self._strangers.pop(connection, None)
                connection.close()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            data = memoryview(bytearray(_HELLO.size))
            try:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                connection.settimeout(_CONNECT_S)
                _receive(connection, data)
            finally:
                with self._changed:
                    is_awaited = connection in self._strangers
                    self._strangers.pop(connection, None)
            if not is_awaited:
                return
            magic, kind, to, life, schema, place, rank, generation, *outbox = _HELLO.unpack(data)
            connection.settimeout(None)
            if magic != _MAGIC or not secrets.compare_digest(to, self.card.life):
                return
            if schema != self.card.schema:
                connection.sendall(_REFUSED)
            elif kind in (_STATE, _INITIAL):
                self._give_state(connection, kind == _INITIAL)
            elif kind == _UPDATES:
                # Before this worker knows who it is, nobody waits for an update of its own.
                self._started.wait()
                if self._closed:
                    return
                queue = self._map(*outbox) if place == self._place else None
                self._take(connection, rank, life, generation, queue)

    def _give_state(self, connection: socket.socket, initial: bool) -> None:
        payload = bytearray(self._payload_bytes)
        while not self._closed:
            outbox, adopted = self._outbox, self._adopted
            iteration = outbox.newest(0)
            if iteration < 0 and adopted is None:
                break
            if adopted is not None and (initial or iteration < 0):
                connection.sendall(_FRAME.pack(_ADOPTED, len(adopted)))
                return connection.sendall(adopted)
            try:
                outbox.read(0, iteration, payload)
            except Error:
                continue  # overwritten meanwhile
            connection.sendall(_FRAME.pack(iteration, len(payload)))
            return connection.sendall(payload)
        connection.sendall(_FRAME.pack(0, 0))

    def _map(self, *outbox: int) -> UpdateQueue | None:
        """Another process's outbox; None: it cannot be opened from here, so its updates come by TCP."""
        try:
            opened = _same_machine.open_there(_same_machine.Where(*outbox))
        except OSError:
            return None
        try:
            queue = UpdateQueue.open(opened)
            return queue if queue.payload_bytes == self._payload_bytes else None
        except Error:
            return None
        finally:
            os.close(opened)

    def _take(
        self,
        connection: socket.socket,
        rank: int,
        life: bytes,
        generation: int,
        shared: UpdateQueue | None,
    ) -> None:
        try:
            shown = self.cards().get(rank)
        except Error:
            shown = None
        queue = shared or UpdateQueue.create(1, self._slots, self._payload_bytes)
        peer = Peer(life, generation, queue, connection)
        with self._changed:
            before = self._peers.get(rank)
            older = before is not None and before.life == life and before.generation > generation
            if self._closed or shown is None or shown[1].life != life or older:
                connection.sendall(_REFUSED)
                return
            self._peers[rank] = peer
            if before is not None:
                before.end()
            self.members_changed = True
            self._changed.notify_all()
        try:
            connection.sendall(_STREAM if shared is None else _SHARED)
            if shared is not None:
                connection.recv(1)  # until it ends
            else:
                self._receive_updates(connection, queue)
        finally:
            with self._changed:
                peer.ended = True
                self._changed.notify_all()

    def _receive_updates(self, connection: socket.socket, queue: UpdateQueue) -> None:
        header = memoryview(bytearray(_FRAME.size))
        payload = memoryview(bytearray(self._payload_bytes))
        while True:
            _receive(connection, header)
            iteration, size = _FRAME.unpack(header)
            if size != len(payload):
                return
            _receive(connection, payload)
            queue.write(0, iteration, payload)
            with self._changed:
                self._changed.notify_all()


def _shut(connection: socket.socket) -> None:
    """Its thread, which may wait for it, closes it."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _receive(connection: socket.socket, into: memoryview) -> None:
    at = 0
    while at < len(into):
        received = connection.recv_into(into[at:])
        if received == 0:
            raise ConnectionResetError(errno.ECONNRESET, "its connection was closed")
        at += received


def _try_read(queue: UpdateQueue, iteration: int, into: Any) -> bool | None:
    """None: it may still come."""
    later = queue.newest(0) > iteration  # and updates come in order
    try:
        queue.read(0, iteration, into)
        return True
    except Error as error:
        if error.code not in (Status.E_NO_UPDATE, Status.E_TORN, Status.E_OVERWRITTEN):
            raise
        return False if later else None
