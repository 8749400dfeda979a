"""Finds and loads libsyncclient, once for the process. Any thread."""

from __future__ import annotations

import os
import threading
from typing import Any

import cffi

from ._cdef import CDEF, CDEF_UPDATE_QUEUE

# The name under which the dynamic linker knows the library: its ABI version is part of it.
SONAME = "libsyncclient.so.0"

ffi = cffi.FFI()
ffi.cdef(CDEF)
ffi.cdef(CDEF_UPDATE_QUEUE)

_lock = threading.Lock()
_loaded: Any = None


class LibraryNotFound(ImportError):
    """libsyncclient could not be loaded; the message says which file was tried, and why not."""


def load() -> Any:
    """The library: the file that SYNCD_LIBRARY names, else the system's libsyncclient.so.0.

    Loaded at the first use and never unloaded. Where SYNCD_LIBRARY is set, nothing else is tried.
    Raises LibraryNotFound.
    """
    global _loaded
    if _loaded is not None:
        return _loaded
    with _lock:
        if _loaded is None:
            path = os.environ.get("SYNCD_LIBRARY", "")
            try:
                found = ffi.dlopen(path or SONAME)
                # What finalizers call: cffi looks a name up at its first use, under a lock in which
                # the garbage collector may be running them.
                for name in ("syncd_worker_free", "syncd_client_close", "syncd_update_queue_free"):
                    getattr(found, name)
                _loaded = found
            except OSError as error:
                if path:
                    hint = f"SYNCD_LIBRARY={path} cannot be loaded"
                else:
                    hint = (
                        f"{SONAME} cannot be loaded; install the syncd client library, or set "
                        "SYNCD_LIBRARY to its path"
                    )
                raise LibraryNotFound(f"{hint}: {error}") from None
    return _loaded


def library_version() -> str:
    """The version of the loaded library, such as "0.1.0". Raises LibraryNotFound."""
    version: str = ffi.string(load().syncd_version()).decode()
    return version
