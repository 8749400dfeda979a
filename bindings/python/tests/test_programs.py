"""The commands syncd and syncctl, and `python -m syncd`: they become the programs."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest
from conftest import PATIENCE_S, program

SOURCE = pathlib.Path(__file__).parents[1] / "src"


def run_command(name, *arguments, path):
    """As the command of an installation does, which has no programs inside."""
    code = f"import syncd._programs as p; p._PACKAGED = '/nowhere'; p.{name}()"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, "PATH": str(path), "PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )


@pytest.mark.parametrize("name", ["syncd", "syncctl"])
def test_no_program(name, tmp_path):
    done = run_command(name, path=tmp_path)
    assert done.returncode == 127
    assert f"{name}: no program {name}: this installation has none inside" in done.stderr
    # A script by this name, such as another installation's command, is none.
    (tmp_path / name).write_text("#!/bin/sh\n")
    (tmp_path / name).chmod(0o755)
    assert run_command(name, path=tmp_path).returncode == 127


@pytest.mark.parametrize("name", ["syncd", "syncctl"])
def test_the_program_on_the_path(name, tmp_path):
    (tmp_path / name).symlink_to(program(name))
    done = run_command(name, "--version", path=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"{name} 0.1.0\n")


def test_python_m_syncd(tmp_path):
    bare = {"PATH": os.path.dirname(program("syncd")), "PYTHONPATH": str(SOURCE)}
    command = [sys.executable, "-m", "syncd"]
    done = subprocess.run([*command, "--wrong"], env=bare, capture_output=True, text=True)
    assert done.returncode == 2 and "--wrong" in done.stderr
    options = ["--store", "memory", "--unix", tmp_path / "s", "--tcp", "off"]
    ended = subprocess.run(
        [*command, *options, "--exit-when-idle", "10ms"], env=bare, capture_output=True, text=True
    )
    assert ended.returncode == 0 and "stopping idle=10ms" in ended.stderr


def test_this_package_comes_first(tmp_path, monkeypatch):
    from syncd import _programs

    shutil.copy(program("syncctl"), tmp_path / "syncctl")
    monkeypatch.setattr(_programs, "_PACKAGED", str(tmp_path))
    assert _programs.find_program("syncctl") == str(tmp_path / "syncctl")
