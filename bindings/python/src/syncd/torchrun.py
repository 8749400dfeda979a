"""torchrun on syncd: the rendezvous backend "syncd".

    torchrun --nnodes=2:4 --nproc-per-node=8 --rdzv-backend=syncd --rdzv-endpoint=host:7117 \\
        --rdzv-id=llm train.py

torch 2.5 and later find it by the entry point `torchrun.handlers`. For older ones

    python -m syncd.torchrun ...

takes the same command line. Its backend is syncd unless the line names another; it also looks at the
workers every 0.1 s unless the line says otherwise. On one machine

    python -m syncd.torchrun --standalone --nproc-per-node=4 train.py

needs no daemon: it finds or starts one, as connect("auto") does, and its workers use the same.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
import uuid
from datetime import timedelta
from typing import Any, Callable, Sequence

from . import _rendezvous
from ._rendezvous import BACKEND
from .client import Client, connect

__all__ = ["create_handler", "handler", "main", "register"]

_log = logging.getLogger("syncd.torchrun")
_MONITOR_INTERVAL_S = 0.1
_made: dict[str, Any] = {}  # classes of torch's, made at their first use: torch is slow to import


def handler() -> Callable[[Any], Any]:
    """What the entry point names: torch calls it for the function that makes handlers."""
    return create_handler


def create_handler(parameters: Any) -> Any:
    """A handler of the gather job `rdzv.<run id>`, from torch's RendezvousParameters.

    Keys of --rdzv-conf: last_call, regroup_wait, straggle_wait (of policy gather); token_file, ca,
    certificate, key, server_name (of syncd.connect()); join_timeout (600 s; spares wait for ever);
    confirm_timeout (60 s); local_addr, at which the others reach this node; name of this node, by
    default <host>-<pid>.

    Raises ValueError, which names what is wrong and what is allowed.
    """
    settings = _rendezvous.read_settings(parameters)
    return _handler_class()(settings)


def register() -> None:
    """Makes torch know the backend; for a torch that reads no entry points."""
    from torch.distributed.elastic.rendezvous import rendezvous_handler_registry

    if BACKEND not in rendezvous_handler_registry._registry:
        rendezvous_handler_registry.register(BACKEND, create_handler)


# ---- torch's classes -----------------------------------------------------------------------------


class _Stores:
    """Stores with libuv or without: USE_LIBUV decides, else what the build can. Workers are told where it
    cannot."""

    def __init__(self) -> None:
        from torch.distributed import TCPStore

        self._options: dict[str, bool] = {}
        self.has_default = True  # whether a store can be made without saying which
        if "use_libuv" not in (TCPStore.__init__.__doc__ or ""):
            return  # of a torch that has no choice
        try:
            TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        except RuntimeError:
            self.has_default = False
            os.environ.setdefault("USE_LIBUV", "0")
        self._options["use_libuv"] = os.environ.get("USE_LIBUV", "1") == "1"

    def _make(self, host: str, port: int, is_master: bool, timeout: timedelta) -> Any:
        from torch.distributed import TCPStore

        return TCPStore(
            host,
            port,
            is_master=is_master,
            timeout=timeout,
            wait_for_workers=False,
            **self._options,
        )

    def open(self) -> Any:
        return self._make("127.0.0.1", 0, True, timedelta(seconds=300))

    def connect(self, host: str, port: int, timeout: timedelta) -> Any:
        return self._make(host, port, False, timeout)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        port: int = probe.getsockname()[1]
        return port


def _handler_class() -> Any:
    if "handler" in _made:
        return _made["handler"]
    import torch.distributed
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.rendezvous import api

    failures = _rendezvous.Failures(
        closed=api.RendezvousClosedError,
        timeout=api.RendezvousTimeoutError,
        connection=api.RendezvousConnectionError,
        state=api.RendezvousStateError,
    )
    store_error = getattr(torch.distributed, "DistStoreError", RuntimeError)

    class SyncdRendezvousHandler(api.RendezvousHandler):  # type: ignore[misc]
        """torch's interface over _rendezvous.Core."""

        def __init__(self, settings: _rendezvous.Settings) -> None:
            self._stores = _Stores()
            self._core = _rendezvous.Core(
                settings,
                _rendezvous.Member(settings),
                self._stores,
                failures,
                store_error,
                SignalException,
            )

        def get_backend(self) -> str:
            return BACKEND

        def get_run_id(self) -> str:
            return self._core.settings.run_id

        @property
        def use_agent_store(self) -> bool:
            """Whether workers take the agents' store, which is new in each round. They make their
            ends of it without saying whether by libuv, so that the build must have its default."""
            is_disabled = os.environ.get("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "0") == "1"
            return self._stores.has_default and not is_disabled

        def next_rendezvous(self) -> Any:
            entered = self._core.enter()
            if not hasattr(api, "RendezvousInfo"):
                return entered.store, entered.rank, entered.size
            port = entered.port
            if not self.use_agent_store:  # rank 0's worker opens one
                if entered.rank == 0:
                    entered.store.set("MASTER_PORT", str(_free_port()))
                port = int(entered.store.get("MASTER_PORT"))
            store_info = api.RendezvousStoreInfo(entered.host, port)
            return api.RendezvousInfo(entered.store, entered.rank, entered.size, store_info)

        def is_closed(self) -> bool:
            return self._core.is_closed()

        def set_closed(self) -> None:
            self._core.close()

        def num_nodes_waiting(self) -> int:
            return self._core.waiting()

        def shutdown(self) -> bool:
            return self._core.shut_down(sys.exc_info()[1])

    _made["handler"] = SyncdRendezvousHandler
    return SyncdRendezvousHandler


# ---- python -m syncd.torchrun --------------------------------------------------------------------


def _take_dashes(parser: Any) -> None:
    """Options as newer versions spell them: --max-restarts for --max_restarts."""
    known = parser._option_string_actions
    for text in list(known):
        known.setdefault("--" + text[2:].replace("_", "-") if text[:2] == "--" else text, known[text])


def _repair_std() -> None:
    """torch 1.13 under Python 3.11 reads `--redirects 0`, its own default, as None, and dies of it; 3
    likewise."""
    from torch.distributed.elastic.multiprocessing import Std

    if Std.from_str("0") is not None:
        return
    read = Std.from_str

    def from_str(text: str) -> Any:
        if not isinstance(read(text), dict):  # which refuses what is wrong
            return Std(int(text))
        pairs = [pair.split(":") for pair in text.split(",")]
        return {int(rank): Std(int(value)) for rank, value in pairs}

    Std.from_str = staticmethod(from_str)


def _move_local_addr(options: Any) -> None:
    """torch 2 has an option for it, and does not take it as a key of --rdzv-conf beside that."""
    pairs = options.rdzv_conf.split(",")
    found = [pair for pair in pairs if pair.strip().startswith("local_addr=")]
    if found and hasattr(options, "local_addr"):
        options.rdzv_conf = ",".join(pair for pair in pairs if pair not in found)
        options.local_addr = options.local_addr or found[-1].partition("=")[2].strip()


def _stand_alone(options: Any) -> Client | None:
    """torch would take its own backend for --standalone. The client keeps the daemon until the end."""
    if not options.standalone or options.rdzv_backend != BACKEND:
        return None
    client = connect("auto")
    _log.warning("the daemon is at %s", client.address)
    options.standalone = False
    options.nnodes = "1:1"
    options.rdzv_id = f"alone-{uuid.uuid4().hex[:12]}"
    options.rdzv_endpoint = client.address or ""
    return client


def main(arguments: Sequence[str] | None = None) -> None:
    """torchrun, with the backend syncd."""
    from torch.distributed import run as torch_run
    from torch.distributed.elastic.multiprocessing.errors import record

    register()
    _repair_std()
    parser = torch_run.get_args_parser()
    parser.prog = "python -m syncd.torchrun"
    _take_dashes(parser)
    if "PET_RDZV_BACKEND" not in os.environ:
        parser.set_defaults(rdzv_backend=BACKEND)
    if "PET_MONITOR_INTERVAL" not in os.environ:
        parser.set_defaults(monitor_interval=_MONITOR_INTERVAL_S)
    options = parser.parse_args(arguments)
    _move_local_addr(options)
    daemon = _stand_alone(options)
    try:
        record(torch_run.run)(options)
    finally:
        if daemon is not None:
            daemon.close()


if __name__ == "__main__":
    main()
