"""The programs syncd and syncctl: those that a wheel carries, else the system's.

This module is also what the commands `syncd` and `syncctl` of an installation run. Any thread.
"""

from __future__ import annotations

import os
import sys
from typing import NoReturn

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


def _become(name: str) -> NoReturn:
    try:
        path = find_program(name)
        sys.stdout.flush()
        os.execv(path, [name, *sys.argv[1:]])
    except OSError as error:
        print(f"{name}: {error}", file=sys.stderr)
        sys.exit(127)


def syncd() -> NoReturn:
    """The command `syncd`, also as `python -m syncd`: becomes the daemon."""
    _become("syncd")


def syncctl() -> NoReturn:
    """The command `syncctl`: becomes it."""
    _become("syncctl")
