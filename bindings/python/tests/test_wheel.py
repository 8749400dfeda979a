"""build_wheel's wheel brings its own daemon: it is installed and used without any of the system's."""

import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

import pytest
from conftest import program

PROJECT = pathlib.Path(__file__).parents[1]
BUILD = pathlib.Path(program("syncd")).parents[1]
EVERYWHERE = r"lib(c|m|stdc\+\+|gcc_s|pthread|dl|rt|resolv)\.so\.[0-9]+|ld-linux-.*|linux-vdso\..*"

for _tool in ("patchelf", "strip", "ldd", "dpkg"):
    if shutil.which(_tool) is None:
        pytest.skip(f"{_tool} is not installed", allow_module_level=True)
if not (BUILD / "lib/libsyncd.so.0").exists():
    pytest.skip("this build has no libsyncd", allow_module_level=True)
if importlib.util.find_spec("ensurepip") is None:
    pytest.skip(
        "ensurepip is not installed (Debian and Ubuntu: python3-venv)", allow_module_level=True
    )


def said(*command, **options):
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, timeout=240, **options
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    out = tmp_path_factory.mktemp("wheel")
    made = said(sys.executable, PROJECT / "build_wheel", "--build", BUILD, "--out", out)
    return pathlib.Path(made.splitlines()[-1])


@pytest.fixture(scope="module")
def venv(wheel, tmp_path_factory):
    """A virtual environment with it, without a network, and with nothing of this build."""
    home = tmp_path_factory.mktemp("home")
    folder = home / "v"
    variables = {name: value for name, value in os.environ.items() if not name.startswith("SYNCD_")}
    variables.pop("PYTHONPATH", None)
    variables.update(PATH=f"{folder}/bin:/usr/bin:/bin", HOME=str(home), SYNCD_AUTO_DIR=f"{home}/a")
    said(sys.executable, "-m", "venv", "--system-site-packages", folder, env=variables)
    said(folder / "bin/pip", "install", "--no-index", "--no-deps", wheel, env=variables)
    return folder, variables


def test_its_name_says_where_it_runs(wheel):
    found = re.fullmatch(
        r"syncd-0\.1\.0-py3-none-(manylinux_2_([0-9]+)|linux)_\w+\.whl", wheel.name
    )
    assert found, wheel.name
    needed = set()
    with zipfile.ZipFile(wheel) as archive:
        assert "Tag: py3-none-" in archive.read("syncd-0.1.0.dist-info/WHEEL").decode()
        for name in archive.namelist():
            if re.search("/_(bin|lib)/", name):
                versions = re.findall(rb"\0GLIBC_2\.([0-9]+)", archive.read(name))
                needed.update(map(int, versions))
    assert needed and (found[2] is None or max(needed) <= int(found[2]))


def test_what_is_in_it(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        entry_points = archive.read("syncd-0.1.0.dist-info/entry_points.txt").decode()
        modes = {info.filename: info.external_attr >> 16 for info in archive.infolist()}
    assert {"syncd/_bin/syncd", "syncd/_bin/syncctl"} <= names
    assert {"syncd/_lib/libsyncclient.so.0", "syncd/_lib/libsyncd.so.0"} <= names
    assert all(modes[name] & 0o111 for name in names if "/_bin/" in name)
    assert "[torchrun.handlers]" in entry_points and "syncctl =" in entry_points
    licenses = {name.rpartition("/")[2] for name in names if "/_licenses/" in name}
    for needed in ("libfmt-dev", "libflatbuffers-dev", "libuv1", "libssl3", "librocksdb"):
        assert any(name.startswith(needed) for name in licenses), needed
    assert any(name.endswith("LICENSE") for name in names)


def test_it_needs_only_what_every_system_has(venv):
    (package,) = venv[0].glob("lib/python3*/site-packages/syncd")
    files = [*package.glob("_bin/*"), *package.glob("_lib/*")]
    assert len(files) > 6
    for file in files:
        for line in said("ldd", file, env=venv[1]).splitlines():
            name, _, path = line.strip().partition(" => ")
            inside = path and pathlib.Path(path.split()[0]).resolve().parent == package / "_lib"
            outside = os.path.basename(name.split()[0])
            assert inside or re.fullmatch(EVERYWHERE, outside), f"{file}: {line}"


def test_the_commands(venv):
    folder, variables = venv
    assert said("syncd", "--version", env=variables) == "syncd 0.1.0"
    assert said("syncctl", "--version", env=variables) == "syncctl 0.1.0"
    python = folder / "bin/python"
    assert said(python, "-m", "syncd", "--version", env=variables) == "syncd 0.1.0"
    wrong = subprocess.run([python, "-m", "syncd", "--wrong"], env=variables, capture_output=True)
    assert wrong.returncode == 2 and b"--wrong" in wrong.stderr


def test_a_daemon_inside_the_program(venv):
    code = (
        "import os, syncd\n"
        "with syncd.serve() as server, syncd.connect(server.address) as client:\n"
        "    with client.join('job', 'asp', rank=0, world_size=1) as worker:\n"
        "        for step in worker.steps(5): worker.push()\n"
        "maps = open('/proc/self/maps').read()\n"
        "print(*sorted({line.split('/')[-1] for line in maps.splitlines() if '/_lib/' in line}))"
    )
    loaded = said(venv[0] / "bin/python", "-c", code, env=venv[1]).split()
    assert {"libsyncclient.so.0", "libsyncd.so.0"} <= set(loaded)
    assert any(re.fullmatch(r"librocksdb-[0-9a-f]{8}\.so\..*", name) for name in loaded)
