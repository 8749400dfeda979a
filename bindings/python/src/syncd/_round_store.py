"""The store that an agent of torch's gets for one round: a TCPStore whose waits can be ended.

torch looks at the rendezvous only while its workers are healthy. Before that, and at the end, it waits in
the store for its peers: for 300 s, also for one that is gone. So waits are made in slices here, and end
when the round is broken; the ranks' exchange then gets stand-in answers, so that the agent becomes
healthy and forms the next round at its first look.

Nothing here imports torch.
"""

from __future__ import annotations

import concurrent.futures
import json
import logging
import queue
import random
import socket
import threading
import time
from datetime import timedelta
from typing import Any, Callable, Iterable, Protocol

_log = logging.getLogger("syncd.torchrun")

# What torch's agents write and read.
ROLE_INFO = "torchelastic/role_info"
ASSIGNED_RANKS = "torchelastic/assigned_ranks"
TERMINAL_STATE = "torchelastic/agent/terminal_state"
# What is ours. A member writes at which address of its own it can be seen to live, and that it has
# finished; "again": one of this round has begun anew.
CONFIRMED = "syncd/confirmed"
AGAIN = "syncd/again"
LIVES = "syncd/lives/"
FINISHED = "syncd/finished/"

# Between two looks at the store, from the first to the last.
_POLL_S_MIN = 0.001
_POLL_S_MAX = 0.1
# How often a call that the store does not answer looks whether it is to be given up.
_SLICE_S = 0.05
# How often a member that has finished looks whether those that it waits for live, and at how many.
_LOOK_S = 2.0
_LOOKS_MAX = 16
# How long the daemon may take to notice that a member is gone whose store is gone.
_STORE_LOST_S = 10.0
_DEFAULT_TIMEOUT = timedelta(seconds=300)


def is_reachable(address: str) -> bool:
    """Whether somebody listens at host:port."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=1).close()
        return True
    except OSError:
        return False


class StoreLost(Exception):
    """The round's store does not answer any more."""


class Line:
    """A store's calls, made on a thread of their own: a caller is never held by a store whose machine has
    vanished, and signal handlers run. One caller at a time. Once a call has failed or was given up, the
    connection is in an unknown state, and all later ones fail."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self.lost = ""  # why
        self._calls: queue.SimpleQueue[Any] = queue.SimpleQueue()
        threading.Thread(target=self._serve, name="syncd-store", daemon=True).start()

    def _serve(self) -> None:
        while (made := self._calls.get()) is not None:
            name, arguments, future = made
            try:
                future.set_result(getattr(self.store, name)(*arguments))
            except Exception as error:  # whatever torch's version raises
                future.set_exception(error)
            del made, name, arguments, future

    def call(self, given_up: Callable[[], bool], name: str, *arguments: Any) -> Any:
        """The result of a method of the store's that does not wait. Raises StoreLost."""
        if self.lost:
            raise StoreLost(self.lost)
        future: concurrent.futures.Future[Any] = concurrent.futures.Future()
        self._calls.put((name, arguments, future))
        while True:
            try:
                return future.result(_SLICE_S)
            except concurrent.futures.TimeoutError:
                if future.done() or given_up():
                    self.lost = "it did not answer"
            except Exception as error:
                self.lost = str(error).splitlines()[0] if str(error) else type(error).__name__
            if self.lost:
                raise StoreLost(self.lost)

    def peek(self, given_up: Callable[[], bool], key: str) -> bytes | None:
        """The value, or None if there is none: torch's own waits leave old versions' connections out of
        step when they time out. A store answers an unequal compare_set with what it has, and for a key
        that it has not, with what was expected."""
        value: bytes = self.call(given_up, "compare_set", key, _NO_VALUE, _NO_VALUE)
        return None if value == _NO_VALUE.encode() else value

    def close(self) -> None:
        """Ends the thread once what it does is done."""
        self.lost = self.lost or "it was closed"
        self._calls.put(None)


_NO_VALUE = "syncd: no value"


class Round(Protocol):
    """What the store asks of the handler."""

    def is_broken(self) -> bool:
        """Whether a member of the round is gone."""

    def break_up(self, why: str) -> None:
        """From here on it is: this side knows better than the daemon."""

    def end(self) -> bool:
        """The agent's workers have ended. True: well, and the daemon was told; False: they failed."""


class RoundStore:
    """What torch's agent calls: get, set, multi_get, multi_set, wait, check, add, timeout, set_timeout.
    All else goes to the store itself."""

    def __init__(
        self,
        line: Line,
        round_: Round,
        rank: int,
        size: int,
        address: str,
        timeout_error: type[Exception] = RuntimeError,
        reachable: Callable[[str], bool] = is_reachable,
    ) -> None:
        self._line = line
        self._round = round_
        self._rank = rank
        self._size = size
        self._address = address
        self._timeout_error = timeout_error
        self._timeout = _DEFAULT_TIMEOUT
        self._role: dict[str, Any] = {"local_world_size": 1}
        self._ended = False  # the agent's workers have
        self._failed = False  # and they did not end well
        self._lost_at: float | None = None
        self._reachable = reachable
        self._looked_at = 0.0

    # ---- What torch calls

    @property
    def timeout(self) -> timedelta:
        return self._timeout

    def set_timeout(self, timeout: timedelta) -> None:
        self._timeout = timeout

    def set(self, key: str, value: str | bytes) -> None:
        if key.startswith(TERMINAL_STATE):
            self._end()
        if key == "MASTER_ADDR":
            value = self._address  # at which all members have reached this one's store
        if key.startswith(ROLE_INFO) and not key.endswith(".FIN"):
            self._role = json.loads(value)
        self._do("set", key, value)

    def get(self, key: str) -> bytes:
        return self._await(key, self._timeout)

    def wait(self, keys: Iterable[str], timeout: timedelta | None = None) -> None:
        end = time.monotonic() + (self._timeout if timeout is None else timeout).total_seconds()
        for key in keys:
            self._await(key, timedelta(seconds=end - time.monotonic()))

    def multi_get(self, keys: Iterable[str]) -> list[bytes]:
        return [self.get(key) for key in keys]

    def multi_set(self, keys: Iterable[str], values: Iterable[str | bytes]) -> None:
        for key, value in zip(keys, values):
            self.set(key, value)

    def add(self, key: str, amount: int) -> int:
        if key.startswith(TERMINAL_STATE):
            self._end()
        return int(self._do("add", key, amount) or 0)

    def check(self, keys: Iterable[str]) -> bool:
        return all(self._peek(key) is not None for key in keys)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._line.store, name)

    # ---- What the handler calls

    def begin_anew(self) -> None:
        """Tells those who wait for this member at the end that it has begun anew."""
        end = time.monotonic() + 1
        try:
            self._line.call(lambda: time.monotonic() > end, "set", AGAIN, "1")
        except StoreLost:
            pass  # nobody can wait there

    # ---- Waits

    def _end(self) -> None:
        if self._ended:
            return
        self._ended = True
        self._looked_at = time.monotonic()
        self._failed = not self._round.end()
        if not self._failed:
            self._do("set", f"{FINISHED}{self._rank}", "1")

    def _is_left_alone(self, key: str) -> bool:
        """A member that has finished waits for the others: not for one that has begun anew, since it
        must not train again, nor for one that is dead, of which nobody may be left to tell it. (Of a
        ".FIN", all have finished already.)"""
        if self._peek(AGAIN) is not None:
            return True
        now = time.monotonic()
        if now - self._looked_at < _LOOK_S:
            return False
        self._looked_at = now
        others = [rank for rank in range(self._size) if rank != self._rank]
        for rank in random.sample(others, min(len(others), _LOOKS_MAX)):
            all_finished = key.endswith(".FIN")
            if not all_finished and self._peek(f"{FINISHED}{rank}") is not None:
                continue
            address = self._peek(f"{LIVES}{rank}")
            if address is None or self._reachable(address.decode()):
                continue
            # It may have finished and ended since.
            if self._peek(key if all_finished else f"{FINISHED}{rank}") is None:
                _log.info("member %d of the round is gone: not waiting for it to finish", rank)
                return True
        return False

    def _do(self, name: str, *arguments: Any) -> Any:
        try:
            return self._line.call(self._is_over, name, *arguments)
        except StoreLost as error:
            self._note_lost(error)
            return None

    def _peek(self, key: str) -> bytes | None:
        try:
            return self._line.peek(self._is_over, key)
        except StoreLost as error:
            self._note_lost(error)
            return None

    def _note_lost(self, error: StoreLost) -> None:
        if self._lost_at is None:
            self._lost_at = time.monotonic()
            _log.info("the store of the round is lost: %s", error)

    def _is_over(self) -> bool:
        """Whether there is nothing to wait for any more."""
        if self._failed or self._round.is_broken():
            return True
        if self._lost_at is None:
            return False
        if self._ended:
            return True
        if time.monotonic() - self._lost_at >= _STORE_LOST_S:
            self._round.break_up(f"its store is lost: {self._line.lost}")
            return True
        return False

    def _await(self, key: str, timeout: timedelta) -> bytes:
        end = time.monotonic() + timeout.total_seconds()
        pause_s = _POLL_S_MIN
        while True:
            value = self._peek(key)
            if value is not None:
                return value
            if self._is_over() or (self._ended and self._is_left_alone(key)):
                _log.info("no wait for %s: the round is over", key)
                return self._stand_in(key)
            left_s = end - time.monotonic()
            if left_s <= 0:
                seconds = timeout.total_seconds()
                raise self._timeout_error(f"Socket Timeout: no {key} after {seconds:g} s")
            time.sleep(min(pause_s, left_s))
            pause_s = min(2 * pause_s, _POLL_S_MAX)

    def _stand_in(self, key: str) -> bytes:
        """What this member would say in another's place: enough for its agent to go on."""
        workers = self._role["local_world_size"]
        if key.endswith(".FIN"):
            return b"FIN"
        if key.startswith(ROLE_INFO):
            place = int(key[len(ROLE_INFO) :].lstrip("/"))
            return json.dumps({**self._role, "rank": place}).encode()
        if key.startswith(ASSIGNED_RANKS):
            first, all_workers = self._rank * workers, self._size * workers
            return json.dumps([first, all_workers, first, all_workers]).encode()
        return {"MASTER_ADDR": b"127.0.0.1", "MASTER_PORT": b"1"}.get(key, b"0")
