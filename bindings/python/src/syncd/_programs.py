"""The programs syncd and syncctl: those that a wheel carries, else the system's.

This module is also what the commands `syncd` and `syncctl` of an installation run. Any thread.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import NoReturn

_NO_DAEMON = 3  # syncctl's exit code
_PACKAGED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_bin")


class ProgramNotFound(FileNotFoundError):
    """Neither this package nor PATH has the program; the message says where it was looked for."""


def _is_binary(path: str) -> bool:
    """Scripts do not count: a command of this package would find itself, or that of another venv."""
    try:
        with open(path, "rb") as file:
            return file.read(4) == b"\x7fELF" and os.access(path, os.X_OK)
    except OSError:
        return False


def find_program(name: str) -> str:
    """The path of `syncd` or `syncctl`: the one in this package, else the first on PATH. Raises
    ProgramNotFound."""
    folders = [_PACKAGED, *os.get_exec_path()]
    for folder in folders:
        path = os.path.join(folder, name)
        if _is_binary(path):
            return os.path.abspath(path)
    raise ProgramNotFound(
        f"no program {name}: this installation has none inside, and PATH names none. Install a wheel "
        "that has it (bindings/python/build_wheel), or the package syncd"
    )


def _path_of(name: str) -> str:
    """find_program(), or the end of this command."""
    try:
        return find_program(name)
    except OSError as error:
        print(f"{name}: {error}", file=sys.stderr)
        sys.exit(127)


def _become(name: str) -> NoReturn:
    path = _path_of(name)
    sys.stdout.flush()
    os.execv(path, [name, *sys.argv[1:]])


def syncd() -> NoReturn:
    """The command `syncd`, also as `python -m syncd`: becomes the daemon."""
    _become("syncd")


def syncctl() -> NoReturn:
    """The command `syncctl`: becomes it. Where neither the command line nor SYNCD_ADDR names a daemon, and
    none answers at the default addresses, it asks the one that connect("auto") has started."""
    from . import _auto  # not needed by those who name their daemon
    from .errors import Error

    named = any(word == "--addr" or word.startswith("--addr=") for word in sys.argv[1:])
    if named or os.environ.get("SYNCD_ADDR") or any(_auto.local_daemons()):
        _become("syncctl")
    try:
        running = _auto.running()
    except (Error, OSError) as error:
        print(f"syncctl: {error}", file=sys.stderr)
        running = []
    if len(running) == 1:
        os.environ["SYNCD_ADDR"] = running[0].address
        if running[0].token_file:
            os.environ.setdefault("SYNCD_TOKEN_FILE", running[0].token_file)
    if len(running) < 2:
        _become("syncctl")
    # Some commands need no daemon.
    code = subprocess.call([_path_of("syncctl"), *sys.argv[1:]])
    if code == _NO_DAEMON:
        print('syncctl: connect("auto") has started several; name one in SYNCD_ADDR:', file=sys.stderr)
        for one in running:
            print(f"  {one.address}  ({one.launch})", file=sys.stderr)
    sys.exit(code)
