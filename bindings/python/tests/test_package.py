"""A wheel and a source distribution can be built without a network, and hold what they must."""

import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import zipfile

import pytest
import setuptools

PROJECT = pathlib.Path(__file__).parents[1]


def modules_in(folder):
    files = [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    return {str(path.relative_to(folder)) for path in files}


MODULES = modules_in(PROJECT / "src/syncd")

# What reads [project] of pyproject.toml.
pytestmark = pytest.mark.skipif(
    int(setuptools.__version__.split(".")[0]) < 61, reason="setuptools is older than 61"
)


def build(kind, source, target):
    """Calls the build backend as pip and `build` do; a proxy that is none stands for no network."""
    target.mkdir()
    code = f"from setuptools import build_meta; print(build_meta.build_{kind}({str(target)!r}))"
    environment = {**os.environ, "https_proxy": "http://127.0.0.1:1", "PYTHONPATH": ""}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=source, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    (built,) = target.iterdir()
    return built


@pytest.fixture
def source(tmp_path):
    copy = tmp_path / "source"
    ignore = shutil.ignore_patterns("__pycache__", "*.egg-info", "build", "dist")
    shutil.copytree(PROJECT, copy, ignore=ignore)
    return copy


def test_the_wheel_works_from_where_it_is_unpacked(source, tmp_path, daemon):
    wheel = build("wheel", source, tmp_path / "wheel")
    assert wheel.name == "syncd-0.1.0-py3-none-any.whl"
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    assert modules_in(site / "syncd") == MODULES
    assert {"py.typed", "_cdef.py", "torch/server.py"} <= MODULES
    example = PROJECT / "examples/parameter_server.py"
    subprocess.run(
        [sys.executable, example, "2", "200"],
        env={**os.environ, "PYTHONPATH": str(site), "SYNCD_ADDR": daemon.address},
        check=True,
        cwd=tmp_path,
    )


def test_the_source_distribution_builds_the_same_wheel(source, tmp_path):
    sdist = build("sdist", source, tmp_path / "sdist")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path)
    root = tmp_path / "syncd-0.1.0"
    for name in ("README.md", "examples/parameter_server.py", "tests/conftest.py"):
        assert (root / name).exists(), name
    wheels = [build("wheel", root, tmp_path / "a"), build("wheel", source, tmp_path / "b")]
    names = [sorted(zipfile.ZipFile(wheel).namelist()) for wheel in wheels]
    assert names[0] == names[1]


@pytest.mark.skipif(importlib.util.find_spec("mypy") is None, reason="mypy is not installed")
def test_its_types_hold(tmp_path):
    # py.typed says that it has some.
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--cache-dir", tmp_path],
        cwd=PROJECT,
        capture_output=True,
        text=True,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
