"""The exchange between neighbours, step by step: who sent what in which life, and what a reader gets."""

import contextlib
import mmap
import os
import socket
import threading
import types

import pytest

import syncd
from syncd import _peers
from syncd._peers import Card, Exchange

PAYLOAD = 1 << 16
SLOTS = 3


def update(number):
    return bytes([number]) * PAYLOAD


class Board:
    """What the daemon says of the members."""

    def __init__(self):
        self.members = {}

    def show(self, rank, card, state=syncd.MemberState.ACTIVE):
        self.members[rank] = syncd.Member(rank, state, 0, f"worker-{rank}", "host", card.encode())

    def drop(self, rank):
        self.members[rank] = self.members[rank]._replace(state=syncd.MemberState.LOST)

    def __call__(self):
        return syncd.Members(1, tuple(self.members.values()))


@pytest.fixture
def board():
    return Board()


@pytest.fixture
def make(board):
    made = []

    def start(rank, shared=True, timeout=30.0, schema=b"s" * 16, shown=True):
        exchange = Exchange(PAYLOAD, SLOTS, schema, "", "127.0.0.1", timeout, shared)
        if shown:
            board.show(rank, exchange.card)
        exchange.start(rank, f"worker {rank}", board)
        made.append(exchange)
        return exchange

    yield start
    for exchange in made:
        exchange.close()


def read(exchange, rank, iteration, peers=None):
    into = bytearray(PAYLOAD)
    found = exchange.read(rank, iteration, into, exchange.peers() if peers is None else peers)
    assert not found or into == into[:1] * PAYLOAD  # never a mixture
    return into[0] if found else None


class Raw:
    """A sender that does what the test says: hello, and frames in pieces."""

    def __init__(self, board, rank, to, schema=b"s" * 16, key=None):
        self.maker = Exchange(PAYLOAD, SLOTS, schema, "", "127.0.0.1", 1, False)
        self.maker._rank = rank
        self.to = to
        if board is not None:
            board.show(rank, self.maker.card)
        self.hello(key)

    def hello(self, key=None):
        self.connection = socket.create_connection(("127.0.0.1", self.to.card.port), 30)
        card = self.to.card if key is None else self.to.card._replace(life=key)
        self.connection.sendall(self.maker._hello(_peers._UPDATES, card))
        self.answer = self.connection.recv(1)

    def frame(self, iteration, number, first=0, last=None):
        whole = _peers._FRAME.pack(iteration, PAYLOAD) + update(number)
        self.connection.sendall(whole[first:last])

    def close(self):
        self.connection.close()


def ended(exchange, rank):
    """Waits until the exchange has seen that the sender's connection is closed."""
    peer = exchange.peers()[rank]
    with exchange._changed:
        assert exchange._changed.wait_for(lambda: peer.ended, 30)


def reading(exchange, rank, iteration, peers=None):
    """Another thread reads; its result comes with .result()."""
    done = []
    peers = exchange.peers() if peers is None else peers
    thread = threading.Thread(target=lambda: done.append(read(exchange, rank, iteration, peers)))
    thread.start()

    def result():
        thread.join(60)
        return done[0]

    return types.SimpleNamespace(result=result, waits=thread.is_alive)


@pytest.mark.parametrize("shared", [True, False])
def test_what_is_sent_is_read(make, shared):
    a, b, c = (make(rank, shared) for rank in range(3))
    for iteration in range(6):
        a.send(iteration, [1, 2], update(iteration))
        b.send(iteration, [2], update(100 + iteration))
        assert read(b, 0, iteration) == read(c, 0, iteration) == iteration
        assert read(c, 1, iteration) == 100 + iteration
    assert (b.peers()[0].queue.fileno() != a._outbox.fileno()) and a.peers() == {}
    assert {edge.answer for edge in a._edges.values()} == {b"s" if shared else b"t"}
    # As many as the policy needs are kept, and one more.
    assert read(c, 0, 6 - SLOTS) == 6 - SLOTS
    assert read(c, 0, 1) is None


def test_one_machine_without_access_to_the_memory_sends_by_tcp(make, monkeypatch):
    a, b = make(0), make(1)
    real = os.open

    def refused(path, *arguments):
        if str(path).startswith("/proc/"):
            raise PermissionError(path)
        return real(path, *arguments)

    monkeypatch.setattr(os, "open", refused)
    a.send(0, [1], update(7))
    assert a._edges[1].answer == b"t"
    assert read(b, 0, 0) == 7


def test_another_process_under_the_same_numbers_is_not_mapped(make):
    b = make(1)
    where = os.fstat(b._outbox.fileno())
    assert b._map(os.getpid(), b._outbox.fileno(), where.st_dev, where.st_ino) is not None
    assert b._map(os.getpid(), b._outbox.fileno(), where.st_dev, where.st_ino + 1) is None
    other = syncd.UpdateQueue.create(1, 1, 64)
    where = os.fstat(other.fileno())
    assert b._map(os.getpid(), other.fileno(), where.st_dev, where.st_ino) is None


def test_a_reader_waits_until_an_update_is_whole(make, board):
    b = make(1)
    a = Raw(board, 0, b)
    assert a.answer == b"t"
    a.frame(3, 9, last=PAYLOAD // 2)
    result = reading(b, 0, 3)
    assert result.waits()
    a.frame(3, 9, first=PAYLOAD // 2)
    assert result.result() == 9


def test_half_an_update_of_a_dying_sender_is_left_out_over_tcp(make, board):
    b = make(1)
    a = Raw(board, 0, b)
    a.frame(3, 8)
    a.frame(4, 9, last=PAYLOAD - 1)
    result = reading(b, 0, 4)
    a.close()
    assert result.result() is None
    assert read(b, 0, 3) == 8  # it was whole before


def test_half_an_update_of_a_dying_sender_is_left_out_in_shared_memory(make, board):
    a, b = make(0), make(1)
    a.send(4, [1], update(8))
    a.send(5, [1], update(9))
    assert read(b, 0, 5) == 9
    with mmap.mmap(a._outbox.fileno(), 0) as memory:  # in the middle of a write
        at = memory.find(update(9))
        memory[at + PAYLOAD // 2 : at + PAYLOAD] = update(200)[PAYLOAD // 2 :]
    result = reading(b, 0, 5)
    assert result.waits()
    a.close()
    assert result.result() is None
    assert read(b, 0, 4) == 8


def test_the_dead_senders_whole_update_is_used(make, board):
    a, b = make(0), make(1)
    a.send(4, [1], update(8))
    peers = b.peers()
    a.close()
    ended(b, 0)
    board.drop(0)
    assert read(b, 0, 4, peers) == 8


@pytest.mark.parametrize("shared", [True, False])
def test_what_an_old_life_sends_after_the_newers_first_is_dropped(make, board, shared):
    b = make(1, shared)
    old = Raw(board, 0, b)
    old.frame(4, 11)
    assert read(b, 0, 4) == 11
    new = make(0, shared)  # the daemon names it from now on
    new.send(5, [1], update(22))
    with contextlib.suppress(OSError):  # its connection was closed
        old.frame(5, 11)
        old.frame(6, 11)
    with contextlib.suppress(ConnectionResetError):
        assert old.connection.recv(1) == b""
    old.hello()
    assert old.answer == b"r"
    with contextlib.suppress(OSError):
        old.frame(5, 11)
    assert read(b, 0, 5) == 22
    # Of the older life's frames none counts any more, even one that nobody had read.
    result = reading(b, 0, 4)
    new.send(6, [1], update(23))
    assert read(b, 0, 6) == 23
    assert result.result() is None


def test_an_update_of_the_life_before_is_not_taken_for_one_of_the_present(make, board):
    """The newer life has pushed, and its hello is not there yet."""
    b = make(1)
    old = Raw(board, 0, b)
    old.frame(5, 11)
    assert read(b, 0, 5) == 11
    old.close()
    ended(b, 0)
    new = make(0)
    result = reading(b, 0, 5)
    assert result.waits()
    new.send(5, [1], update(22))
    assert result.result() == 22


@pytest.mark.parametrize("shared", [True, False])
def test_a_worker_that_was_given_up_and_taken_back_repeats_iterations(make, shared):
    a, b = make(0, shared), make(1, shared)
    for iteration in range(4):
        a.send(iteration, [1], update(iteration))
    assert read(b, 0, 3) == 3
    before = b.peers()
    a.start_over()
    assert a.ask(1, b.card, bytearray(PAYLOAD)) is None
    a.send(2, [1], update(102))
    assert read(b, 0, 2) == 102
    ended_before = before[0]
    assert ended_before.ended
    assert read(b, 0, 4, before) is None  # it will not come any more
    older = Raw(None, 0, b)
    older.maker.card = a.card
    older.hello()
    assert older.answer == b"r"


def test_who_is_no_member_is_refused(make, board):
    b = make(1)
    assert Raw(board, 0, b, key=b"k" * 16).answer == b""
    assert Raw(board, 0, b, schema=b"t" * 16).answer == b"r"
    assert Raw(None, 3, b).answer == b"r"
    garbage = socket.create_connection(("127.0.0.1", b.card.port))
    garbage.sendall((b"GET / HTTP/1.1\r\n\r\n" * 20)[: _peers._HELLO.size])
    assert garbage.recv(1) == b""
    assert b.peers() == {}
    assert Raw(board, 0, b).answer == b"t"


def test_many_strangers_are_not_waited_for(make, board, monkeypatch):
    monkeypatch.setattr(_peers, "_STRANGERS", 3)
    monkeypatch.setattr(_peers, "_CONNECT_S", 600)
    b = make(1)
    strangers = [socket.create_connection(("127.0.0.1", b.card.port), 30) for _ in range(8)]
    assert [one.recv(1) for one in strangers[:5]] == [b""] * 5
    assert Raw(board, 0, b).answer == b"t"
    assert len(b._strangers) <= 3
    b.close()  # also those
    assert [one.recv(1) for one in strangers[5:]] == [b""] * 3


def test_one_that_says_hello_to_a_worker_whose_join_fails(board, monkeypatch):
    raised, waits = [], threading.Event()
    monkeypatch.setattr(threading, "excepthook", raised.append)
    before = set(threading.enumerate())
    b = Exchange(PAYLOAD, SLOTS, b"s" * 16, "", "127.0.0.1", 1, False)
    real = b._started.wait
    b._started.wait = lambda: waits.set() or real()
    threads = [one for one in threading.enumerate() if one not in before]
    maker = Exchange(PAYLOAD, SLOTS, b"s" * 16, "", "127.0.0.1", 1, False)
    connection = socket.create_connection(("127.0.0.1", b.card.port), 30)
    connection.sendall(maker._hello(_peers._UPDATES, b.card))
    assert waits.wait(30)
    b.close()
    assert connection.recv(1) == b""
    maker.close()
    for thread in set(threading.enumerate()) - before | set(threads):
        thread.join(30)
    assert raised == [] and b.peers() == {}


def test_a_target_that_does_not_answer_holds_nobody_up(make, board, monkeypatch):
    monkeypatch.setattr(_peers, "_CONNECT_S", 0.05)
    a, b = make(0), make(1)
    silent = socket.create_server(("127.0.0.1", 0))
    board.show(2, b.card._replace(life=b"z" * 16, port=silent.getsockname()[1]))
    a.send(0, [1, 2], update(0))
    a.send(1, [1, 2], update(1))
    assert read(b, 0, 1) == 1
    accepted = silent.accept()[0]
    accepted.settimeout(30)
    accepted.recv(_peers._HELLO.size)
    accepted.sendall(b"t")  # it runs again: it gets what it may wait for
    while not a._edges[2].answer:
        a.send(2, [1, 2], update(2))
    data = bytearray()
    while len(data) < 3 * (PAYLOAD + _peers._FRAME.size):
        data += accepted.recv(1 << 16)
    frames = [data[at] for at in range(_peers._FRAME.size, len(data), PAYLOAD + _peers._FRAME.size)]
    assert frames == [0, 1, 2]
    silent.close()


def test_a_target_that_has_gone_is_not_sent_to(make, board):
    a, b = make(0), make(1)
    b.close()
    board.drop(1)
    a.send(0, [1], update(0))
    assert a._edges == {}


def test_a_target_in_a_new_life_gets_what_follows(make, board):
    a, stopped = make(0), make(1)
    a.send(0, [1], update(0))
    new = make(1)  # the old one's process still has its connection
    a.members_changed = True
    a.send(1, [1], update(1))
    assert read(new, 0, 1) == 1
    ended(stopped, 0)


def test_a_broken_connection_is_made_anew_with_what_is_missing(make, board):
    a, b = make(0, shared=False), make(1, shared=False)
    a.send(0, [1], update(0))
    assert read(b, 0, 0) == 0
    b.peers()[0].end()
    ended(b, 0)
    while a._edges[1].is_open():
        pass
    a._outbox.write(0, 1, update(1))  # as if it had been sent into the broken connection
    a.send(2, [1], update(2))
    assert read(b, 0, 1) == 1
    assert read(b, 0, 2) == 2


def test_a_connection_is_closed_after_the_thread_that_sends_over_it_has_ended(make):
    """Its number is another connection's at once, and that would get the rest of the frame."""
    a, b = make(0, shared=False), make(1, shared=False)
    a.send(0, [1], update(0))
    a.flush(30)
    sending, shut, closed = (threading.Event() for _ in range(3))
    sends, seen = [], []

    class Connection:  # its buffers are full until it is shut down
        def sendall(self, data):
            sends.append(True)
            sending.set()
            assert shut.wait(30)
            closed.wait(0.2)  # as slow as that
            sends.pop()
            raise BrokenPipeError

        def recv(self, size, flags):
            raise BlockingIOError

        def shutdown(self, how):
            shut.set()

        def close(self):
            seen.append(list(sends))
            closed.set()

    real, a._edges[1].connection = a._edges[1].connection, Connection()
    a.send(1, [1], update(1))
    assert sending.wait(30)
    a.close()
    assert seen == [[]]
    real.close()


def test_a_sender_that_has_ended_is_not_shut_down_again(make):
    a, b = make(0), make(1)
    a.send(0, [1], update(0))
    a.close()
    ended(b, 0)
    peer = b.peers()[0]
    peer.connection = types.SimpleNamespace()  # its thread has closed it
    peer.end()


def test_what_does_not_come_is_left_out(make, board, caplog):
    b = make(1, timeout=0.05)
    silent = Raw(board, 0, b)
    assert read(b, 0, 0) is None
    assert "goes on without iteration 0 of worker 0, which has not come in 0.05 s" in caplog.text
    assert read(b, 5, 0) is None  # nobody has that rank
    silent.close()


def test_what_is_queued_is_sent_before_a_worker_leaves(make, board):
    b = make(1)
    a = make(0, shared=False)
    for iteration in range(3):
        a.send(iteration, [1], update(iteration))
    peers = b.peers()
    a.flush(30)
    a.close()
    assert [read(b, 0, iteration, peers) for iteration in range(3)] == [0, 1, 2]


def test_state_is_the_last_whole_update(make):
    a, b = make(0), make(1)
    into = bytearray(PAYLOAD)
    assert b.ask(0, a.card, into) is None
    a.adopt(update(3))
    assert b.ask(0, a.card, into) == -1 and into == update(3)
    a.send(7, [], update(4))
    a.send(8, [], update(5))
    assert b.ask(0, a.card, into) == 8 and into == update(5)
    assert b.ask(0, a.card, into, initial=True) == -1 and into == update(3)  # for who begins, too
    a.send(100, [], update(6))
    assert b.ask(0, a.card, into, initial=True) == 100 and into == update(6)
    a.close()
    assert b.ask(0, a.card, into) is None


def test_a_forked_child_keeps_no_connection(make):
    a, b = make(0), make(1)
    a.send(0, [1], update(0))
    child = os.fork()
    if child == 0:
        opened = [a._server, a._edges[1].connection, b.peers()[0].connection]
        os._exit(sum(one.fileno() >= 0 for one in opened))
    assert os.waitpid(child, 0)[1] == 0
    a.send(1, [1], update(1))
    assert read(b, 0, 1) == 1


def test_cards_are_small_and_survive():
    card = Card(b"l" * 16, "h" * 253, 65535, b"p" * 16, b"s" * 16, "1000 tensors with 10 numbers")
    assert Card.decode(card.encode()) == card
    assert len(card.encode()) <= 1024
    for data in [b"", b"{}", b"[1]", b'{"life": 3}', b"\xff"]:
        assert Card.decode(data) is None
