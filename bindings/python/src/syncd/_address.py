"""At which address other machines reach this one."""

from __future__ import annotations

import os
import re
import socket
from typing import Sequence


def own_address(daemon: str | Sequence[str] | None) -> str:
    """The address of this machine that speaks to the daemon, unless the daemon is on this machine: then the
    host's name, or 127.0.0.1 where that has no address.

    daemon: as for connect(). None: SYNCD_ADDR.
    """
    given = daemon or os.environ.get("SYNCD_ADDR") or ""
    for endpoint in given.split(",") if isinstance(given, str) else given:
        host = _host_of(endpoint)
        own = _towards(host) if host else ""
        if own:
            return own
    name = socket.getfqdn()
    try:
        socket.getaddrinfo(name, None)
        return name
    except OSError:
        return "127.0.0.1"


def is_of_this_machine(endpoint: str) -> bool:
    """Whether only this machine reaches it: a Unix socket, or one of the loopback."""
    return _host_of(endpoint) == "" or is_loopback(_host_of(endpoint))


def is_loopback(host: str) -> bool:
    return host == "localhost" or re.match(r"127\.|\[?::1", host) is not None


def _host_of(endpoint: str) -> str:
    """Empty for a Unix socket."""
    rest = endpoint.strip().rpartition("tcp:")[2].rpartition("tls:")[2]
    if rest.startswith("unix:"):
        return ""
    rest = rest.removeprefix("//")
    host = rest.rsplit(":", 1)[0] if re.search(r":[0-9]+$", rest) else rest
    return host.strip("[]")


def _towards(host: str) -> str:
    """The address of this machine from which packets to `host` go; "": none, or only within it."""
    try:
        for family, _, _, _, address in socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM):
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect(address)  # sends nothing
                own: str = probe.getsockname()[0]
                return "" if own.startswith("127.") or own == "::1" else own
    except OSError:
        pass
    return ""
