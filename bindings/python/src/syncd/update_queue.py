"""UpdateQueue: updates between processes of one machine, over <syncd/update_queue.h>."""

from __future__ import annotations

from typing import Any

from ._arguments import INT64_MAX, c_integer
from ._library import ffi, load
from .errors import Status, error_of, take_error


class UpdateQueue:
    """A queue of updates in memory that processes share. Made by create() or open().

        mine = syncd.UpdateQueue.create(edges=4, slots=5, payload_bytes=4 * parameters)
        theirs = syncd.UpdateQueue.open(descriptor)
        theirs.write(edge, iteration, tensor)
        mine.read(edge, iteration, received)

    Every sender has an edge, and each edge `slots` places: the update of iteration k lies in place
    k mod slots until that place is written again. A reader gets one whole update of the iteration
    that it asks for, or an Error.

    Payloads are contiguous buffers (bytes, bytearray, memoryview, arrays) or torch tensors on the CPU,
    of exactly `payload_bytes`. No call blocks. Any thread, and any process that has the descriptor; an
    edge has one writer at a time.
    """

    def __init__(self, lib: Any, handle: Any) -> None:
        self._lib = lib
        # A call keeps the handle while another thread closes the queue.
        self._handle = ffi.gc(handle, lib.syncd_update_queue_free)
        self.edges: int = lib.syncd_update_queue_edges(handle)
        self.slots: int = lib.syncd_update_queue_slots(handle)
        self.payload_bytes: int = lib.syncd_update_queue_payload_bytes(handle)

    @classmethod
    def create(cls, edges: int, slots: int, payload_bytes: int) -> UpdateQueue:
        """Makes an empty queue in new shared memory, whose pages are taken as they are first written.

        edges: how many may send, numbered from 0. slots: see slots_needed(). payload_bytes: of one
        update, a multiple of 4.
        Raises Invalid, and Error (SYNCD_E_NOMEM).
        """
        options = ffi.new("syncd_update_queue_options *")
        options.struct_size = ffi.sizeof("syncd_update_queue_options")
        options.edges = c_integer("edges", edges, 0, 2**32 - 1)
        options.slots = c_integer("slots", slots, 1, 2**32 - 1)
        options.payload_bytes = c_integer("payload_bytes", payload_bytes, 4, 2**64 - 1)
        return cls._made(load().syncd_update_queue_create, options)

    @classmethod
    def open(cls, descriptor: int) -> UpdateQueue:
        """Maps the queue behind another process's fileno(), received or inherited. The descriptor stays
        the caller's.

        Raises Invalid, Unsupported (a queue of another version), Error (SYNCD_E_NO_UPDATE: no queue).
        """
        number = c_integer("descriptor", descriptor, 0, 2**31 - 1)
        return cls._made(load().syncd_update_queue_open, number)

    @classmethod
    def _made(cls, function: Any, argument: Any) -> UpdateQueue:
        made = ffi.new("syncd_update_queue **")
        error = ffi.new("syncd_error **")
        status = function(argument, made, error)
        if status:
            raise take_error(load(), status, error)
        return cls(load(), made[0])

    @staticmethod
    def slots_needed(max_ig: int, staleness: int = 0, skip: bool = False) -> int:
        """How many slots an edge needs under hop with these parameters. Raises Invalid."""
        slots = ffi.new("uint32_t *")
        error = ffi.new("syncd_error **")
        low, high = -(2**63), INT64_MAX
        status = load().syncd_update_queue_slots_needed(
            c_integer("max_ig", max_ig, low, high),
            c_integer("staleness", staleness, low, high),
            bool(skip),
            slots,
            error,
        )
        if status:
            raise take_error(load(), status, error)
        return int(slots[0])

    def write(self, edge: int, iteration: int, payload: Any) -> None:
        """Puts an update into its slot, for readers whole or not at all.

        Raises Invalid, and Error (SYNCD_E_OVERWRITTEN: the slot holds a later iteration, which stays).
        """
        self._call(self._lib.syncd_update_queue_write, edge, iteration, *_memory(payload, False))

    def read(self, edge: int, iteration: int, into: Any) -> None:
        """Copies an update into a writable buffer, whose content is unspecified if that fails.

        Raises Invalid, and Error with the code SYNCD_E_NO_UPDATE (not written yet), SYNCD_E_OVERWRITTEN
        (its slot holds a later iteration) or SYNCD_E_TORN (half-written: its writer died or is stopped).
        """
        self._call(self._lib.syncd_update_queue_read, edge, iteration, *_memory(into, True))

    def newest(self, edge: int) -> int:
        """The highest iteration written on the edge since it was cleared; -1: none."""
        which = c_integer("edge", edge, 0, 2**32 - 1)
        return int(self._lib.syncd_update_queue_newest(self._open_handle(), which))

    def clear(self, edge: int) -> None:
        """Forgets what was written on the edge: for its writer, when it begins anew. Raises Invalid."""
        self._call(self._lib.syncd_update_queue_clear, edge)

    def fileno(self) -> int:
        """The descriptor of the memory, for open() in another process. The queue's own; closed on exec."""
        return int(self._lib.syncd_update_queue_descriptor(self._open_handle()))

    def close(self) -> None:
        """Unmaps the memory. The queue lives as long as a process has it mapped."""
        self._handle = None

    def __enter__(self) -> UpdateQueue:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open_handle(self) -> Any:
        handle = self._handle
        if handle is None:
            raise error_of(Status.E_CLOSED, "this update queue is closed")
        return handle

    def _call(self, function: Any, edge: int, *arguments: Any) -> None:
        handle = self._open_handle()
        error = ffi.new("syncd_error **")
        which = c_integer("edge", edge, 0, 2**32 - 1)
        if arguments:
            iteration, *memory = arguments
            arguments = (c_integer("iteration", iteration, 0, INT64_MAX), *memory)
        status = function(handle, which, *arguments, error)
        if status:
            raise take_error(self._lib, status, error)


def _memory(buffer: Any, writable: bool) -> tuple[Any, int]:
    """Address and size in bytes of a buffer; the address keeps the buffer alive."""
    if hasattr(buffer, "data_ptr"):
        if buffer.device.type != "cpu" or not buffer.is_contiguous():
            raise error_of(
                Status.E_INVALID,
                f"the tensor lies on {buffer.device}, "
                f"{'contiguous' if buffer.is_contiguous() else 'not contiguous'}; allowed: "
                "contiguous tensors on the CPU",
            )
        return ffi.cast("void *", buffer.data_ptr()), buffer.numel() * buffer.element_size()
    try:
        memory = ffi.from_buffer("char[]", buffer, require_writable=writable)
    except (TypeError, BufferError, ValueError) as error:
        allowed = "writable contiguous" if writable else "contiguous"
        raise TypeError(
            f"the payload is of type {type(buffer).__name__} ({error}); allowed: "
            f"{allowed} buffers, and torch tensors"
        ) from None
    return memory, ffi.sizeof(memory)
