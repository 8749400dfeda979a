"""Finds and loads libsyncclient, and libsyncd for syncd.serve(); each once for the process. Any
thread."""

from __future__ import annotations

import os
import threading
from typing import Any

import cffi

from ._cdef import CDEF, CDEF_SERVER, CDEF_UPDATE_QUEUE

# The names under which the dynamic linker knows the libraries: their ABI version is part of them.
SONAME = "libsyncclient.so.0"
SERVER_SONAME = "libsyncd.so.0"
# Where a wheel has them.
_PACKAGED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_lib")

ffi = cffi.FFI()
ffi.cdef(CDEF)
ffi.cdef(CDEF_UPDATE_QUEUE)
ffi.cdef(CDEF_SERVER)

_lock = threading.Lock()
_loaded: Any = None
_loaded_server: Any = None


class LibraryNotFound(ImportError):
    """A library could not be loaded; the message says which file was tried, and why not."""


def _open(soname: str, variable: str, what: str) -> Any:
    path = os.environ.get(variable, "")
    packaged = os.path.join(_PACKAGED, soname)
    tried = path or (packaged if os.path.exists(packaged) else soname)
    try:
        return ffi.dlopen(tried)
    except OSError as error:
        hint = f"{variable}={path}" if path else tried
        hint += " cannot be loaded"
        if tried == soname:
            hint += f"; install {what}, or set {variable} to its path"
        raise LibraryNotFound(f"{hint}: {error}") from None


def load() -> Any:
    """libsyncclient: the file that SYNCD_LIBRARY names, else the one in this package, else the
    system's libsyncclient.so.0.

    Loaded at the first use and never unloaded. Only the first of them that is there is tried.
    Raises LibraryNotFound.
    """
    global _loaded
    if _loaded is not None:
        return _loaded
    with _lock:
        if _loaded is None:
            found = _open(SONAME, "SYNCD_LIBRARY", "a wheel of syncd, or its client library")
            # What finalizers call: cffi looks a name up at its first use, under a lock in which
            # the garbage collector may be running them.
            for name in ("syncd_worker_free", "syncd_client_close", "syncd_update_queue_free"):
                getattr(found, name)
            _loaded = found
    return _loaded


def load_server() -> Any:
    """libsyncd, likewise: SYNCD_SERVER_LIBRARY, this package, the system's libsyncd.so.0."""
    global _loaded_server
    with _lock:
        if _loaded_server is None:
            what = "a wheel of syncd, or its library for embedding the daemon"
            found = _open(SERVER_SONAME, "SYNCD_SERVER_LIBRARY", what)
            getattr(found, "syncd_server_stop")
            _loaded_server = found
    return _loaded_server


def library_version() -> str:
    """The version of the loaded libsyncclient, such as "0.1.0". Raises LibraryNotFound."""
    version: str = ffi.string(load().syncd_version()).decode()
    return version
