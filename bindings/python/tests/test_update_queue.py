"""UpdateQueue: one whole update or an error, in this process and from another."""

import mmap
import os
import struct

import pytest

import syncd

PAYLOAD = 4096


def update(number):
    return bytes([number]) * PAYLOAD


def code_of(call, *arguments):
    with pytest.raises(syncd.Error) as caught:
        call(*arguments)
    return caught.value.code


def test_updates_stay_until_their_slot_is_written_again():
    queue = syncd.UpdateQueue.create(2, 3, PAYLOAD)
    assert (queue.edges, queue.slots, queue.payload_bytes) == (2, 3, PAYLOAD)
    into = bytearray(PAYLOAD)
    assert queue.newest(1) == -1
    assert code_of(queue.read, 1, 0, into) == syncd.Status.E_NO_UPDATE
    for iteration in range(4):
        queue.write(1, iteration, update(iteration))
    assert queue.newest(1) == 3 and queue.newest(0) == -1
    queue.read(1, 1, into)
    assert into == update(1)
    queue.read(1, 3, memoryview(into))
    assert into == update(3)
    assert code_of(queue.read, 1, 0, into) == syncd.Status.E_OVERWRITTEN
    assert code_of(queue.write, 1, 0, update(0)) == syncd.Status.E_OVERWRITTEN
    assert code_of(queue.read, 0, 1, into) == syncd.Status.E_NO_UPDATE
    queue.clear(1)
    assert queue.newest(1) == -1
    assert code_of(queue.read, 1, 3, into) == syncd.Status.E_NO_UPDATE


def test_another_mapping_is_the_same_queue():
    queue = syncd.UpdateQueue.create(1, 1, PAYLOAD)
    child = os.fork()
    if child == 0:
        with syncd.UpdateQueue.open(queue.fileno()) as other:
            other.write(0, 7, update(7))
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    into = bytearray(PAYLOAD)
    queue.read(0, 7, into)
    assert into == update(7)


def test_a_half_written_update_is_torn_until_it_is_written_again():
    queue = syncd.UpdateQueue.create(1, 1, PAYLOAD)
    queue.write(0, 1, update(1))
    with mmap.mmap(
        queue.fileno(), 0
    ) as memory:  # as a writer leaves it that dies in a second write
        at = memory.find(update(1))
        memory[at : at + 8] = struct.pack("q", 2)
    into = bytearray(PAYLOAD)
    assert code_of(queue.read, 0, 1, into) == syncd.Status.E_TORN
    queue.write(0, 1, update(2))
    queue.read(0, 1, into)
    assert into == update(2)


def test_tensors():
    torch = pytest.importorskip("torch")
    queue = syncd.UpdateQueue.create(1, 1, 64)
    sent, received = torch.arange(16, dtype=torch.float32), torch.zeros(16)
    queue.write(0, 0, sent)
    queue.read(0, 0, received)
    assert torch.equal(sent, received)
    assert code_of(queue.read, 0, 0, torch.zeros(16, 2)[:, 0]) == syncd.Status.E_INVALID
    assert code_of(queue.write, 0, 0, torch.zeros(15)) == syncd.Status.E_INVALID


def test_what_is_refused_is_named():
    queue = syncd.UpdateQueue.create(1, 1, PAYLOAD)
    for call, message in [
        (lambda: syncd.UpdateQueue.create(1, 0, 4), "slots=0; allowed: 1"),
        (lambda: syncd.UpdateQueue.create(1, 1, 6), "multiple of 4"),
        (lambda: syncd.UpdateQueue.create(1, 1, 2), "payload_bytes=2"),
        (lambda: syncd.UpdateQueue.open(10_000), "descriptor 10000"),
        (lambda: queue.write(1, 0, update(0)), "edge 1; the queue has 1"),
        (lambda: queue.write(0, -1, update(0)), "iteration=-1"),
        (lambda: queue.write(0, 0, b"abcd"), "4 bytes; the queue's updates have 4096"),
        (lambda: syncd.UpdateQueue.slots_needed(0), "max_ig is 0"),
    ]:
        with pytest.raises(syncd.Invalid, match=message):
            call()
    with pytest.raises(TypeError, match="writable"):
        queue.read(0, 0, bytes(PAYLOAD))
    with pytest.raises(TypeError, match="of type int"):
        queue.write(0, 0, 3)
    queue.close()
    assert code_of(queue.newest, 0) == syncd.Status.E_CLOSED


def test_slots():
    assert syncd.UpdateQueue.slots_needed(4) == 5
    assert syncd.UpdateQueue.slots_needed(4, staleness=2, skip=True) == 8
