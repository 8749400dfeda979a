"""The scripts of the page on PyTorch run as they are printed, and reach what it says."""

import os
import re
import signal
import subprocess
import sys

import pytest

from conftest import HERE, PATIENCE_S

pytest.importorskip("torch")
pytestmark = pytest.mark.slow
PAGE = HERE.parents[2] / "packaging/doc/pytorch.md"


@pytest.fixture
def folder(tmp_path):
    """With the files that the page has."""
    for name, text in re.findall(r"^`(\w+\.py)`.*?^```python\n(.*?)^```", PAGE.read_text(), re.S | re.M):
        (tmp_path / name).write_text(text)
    return tmp_path


def command(wanted):
    """Of the page: the first one that ends so, on one machine."""
    line = re.search(rf"python3 (-m syncd.torchrun --standalone .*\b{re.escape(wanted)})", PAGE.read_text())
    return [sys.executable, *line[1].split()]


def run(folder, argv, **more):
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(folder), "XDG_STATE_HOME": str(folder), **more}
    environment["PATH"] = os.pathsep.join([os.environ["SYNCD_TEST_BIN_DIR"], os.environ["PATH"]])
    for name in ("SYNCD_ADDR", "RANK", "WORLD_SIZE"):
        if name not in more:
            environment.pop(name, None)
    child = subprocess.Popen(
        argv, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
    )  # fmt: skip
    try:
        said, _ = child.communicate(timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        raise
    assert child.returncode == 0, said
    return said


def losses(said):
    """Lines of several processes may run into each other."""
    return [float(one) for one in re.findall(r"worker \d: loss (\d\.\d{3})", said)]


def test_one_process(folder):
    (loss,) = losses(run(folder, [sys.executable, "one.py"]))
    assert loss == pytest.approx(0.055, abs=0.02)


@pytest.mark.parametrize("policy", [None, "bsp:10"])
def test_averaging(folder, policy):
    found = losses(run(folder, command("averaging.py") + ([policy] if policy else [])))
    assert len(found) == 4 and len(set(found)) == 1 and found[0] < 0.12, found


@pytest.mark.parametrize("policy", ["ssp:3", "asp", "dssp:1-4", "specsync+asp", "naive_wait:2+asp"])
def test_server(folder, policy):
    found = losses(run(folder, [*command("server.py ssp:3")[:-1], policy]))
    assert len(found) == 4 and len(set(found)) == 1 and found[0] < 0.12, found


@pytest.mark.parametrize("policy", [None, "notify_ack:ring_based"])
def test_neighbours(folder, policy):
    found = losses(run(folder, command("neighbours.py") + ([policy] if policy else [])))
    assert len(found) == 4 and max(found) < 0.4, found


def test_ddp_names_who_hangs(folder):
    said = run(folder, command("ddp.py"))
    assert len(set(losses(said))) == 1
    assert len(re.findall(r"waiting for worker 2 ", said)) >= 4, said


def test_replicas(folder, daemon):
    argv = command("replica.py")
    replicas = [
        subprocess.Popen(
            argv, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env={**os.environ, "SYNCD_ADDR": daemon.address, "REPLICA": str(number)},
        )
        for number in range(2)
    ]  # fmt: skip
    said = [one.communicate(timeout=PATIENCE_S)[0] for one in replicas]
    assert [one.returncode for one in replicas] == [0, 0], said
    found = losses("".join(said))
    assert len(found) == 4 and len(set(found)) == 1 and found[0] < 0.12, found
