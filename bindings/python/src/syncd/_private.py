"""Directories and files that only this user may enter and read."""

from __future__ import annotations

import os
import pathlib
import secrets
import stat

from .errors import Status, error_of


def private_directory(path: str | os.PathLike[str], variable: str) -> pathlib.Path:
    """Makes the directory if it is not there. `variable` of the environment can name another one.

    Raises Error: SYNCD_E_AUTH if it is not this user's alone, SYNCD_E_INVALID if it cannot be made.
    """
    directory = pathlib.Path(path)
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = directory.lstat()  # a link is no directory
    except OSError as error:
        raise error_of(
            Status.E_INVALID,
            f"{directory}: {error}; allowed: a directory that can be made. {variable} names another one",
        ) from None
    mode = stat.S_IMODE(found.st_mode)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or mode & 0o077:
        raise error_of(
            Status.E_AUTH,
            f"{directory} is of user {found.st_uid} and has mode {mode:04o}; allowed: a directory of user "
            f"{os.geteuid()}'s with mode 0700. Remove it, or name another one in {variable}",
        )
    return directory


def write_private(path: str | os.PathLike[str], text: str) -> None:
    """Makes a file that only its owner may read; it is there with all its text, or not at all."""
    target = pathlib.Path(path)
    part = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    os.replace(part, target)
