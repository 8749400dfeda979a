"""The parameter server with real processes: deaths, restarts, checkpoints. Each test takes seconds, because
every process imports torch."""

import os
import re
import signal
import subprocess
import sys
import time

import pytest

from conftest import HERE, PATIENCE_S, Process

WORKER = "server_worker.py"


@pytest.fixture(autouse=True)
def private(tmp_path, monkeypatch):
    """Servers of a test note their addresses in its own directory, and end with it."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    yield tmp_path / "syncd"
    for pid in servers(tmp_path):
        os.kill(pid, signal.SIGKILL)


def servers(directory):
    """Of this test: those whose command line names its directory."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                line = file.read().decode(errors="replace")
        except OSError:
            continue
        if "syncd.torch.server" in line and str(directory) in line:
            found.append(int(pid))
    return found


def say(process, pattern):
    return process.wait_for_match(pattern)


def finished(process):
    code, out, err = process.finish()
    assert code == 0, out + err
    found = re.search(r"ends with (-?\d+) lost (\d+) dropped (\d+)", out)
    return [int(number) for number in found.groups()]


def test_workers_train_one_model(daemon, run, private):
    group = [
        run(WORKER, daemon.address, rank, 2, 20, "ssp:2", f"value={9 * rank}", "finish=1") for rank in range(2)
    ]
    say(group[0], r"server \d+")
    assert [finished(one) for one in group] == [[-40, 0, 0]] * 2
    assert {path.stat().st_mode & 0o777 for path in private.iterdir()} == {0o600}
    assert private.stat().st_mode & 0o777 == 0o700
    end = time.monotonic() + PATIENCE_S
    while servers(private.parent):  # 5 s after the last worker said goodbye
        assert time.monotonic() < end
        time.sleep(0.1)


def test_a_worker_whose_loader_ends_early_holds_nobody_up(daemon, run):
    """Under ssp:2, which would not let the other go on alone. Both have all updates."""
    counts = [5, 25]
    group = [run(WORKER, daemon.address, rank, 2, counts[rank], "ssp:2", "finish=1") for rank in range(2)]
    assert [finished(one) for one in group] == [[-30, 0, 0]] * 2


def test_a_gradient_that_is_not_finite_ends_its_worker_and_no_other(daemon, run):
    good = run(WORKER, daemon.address, 0, 2, 20, "asp")
    bad = run(WORKER, daemon.address, 1, 2, 20, "asp", "bad=5")
    code, _, err = bad.finish()
    assert code == 1 and "job job, worker 1, iteration 5: the gradient of bias has a value" in err
    assert finished(good)[0] == -25
    assert "the gradient of bias" in daemon.syncctl("workers", "job")


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1])
def test_a_worker_that_is_killed_comes_back_alone(daemon, run, victim):
    """Also worker 0, which has started the server. It takes what the others have trained meanwhile, never its
    own initial parameters."""
    group = [run(WORKER, daemon.address, rank, 3, 200, "asp", "pause=0.05") for rank in range(3)]
    for one in group:
        say(one, r"pushed 5")
    group[victim].kill()
    for rank in {0, 1, 2} - {victim}:
        say(group[rank], r"pushed 15")
    group[victim] = run(WORKER, daemon.address, victim, 3, 200, "asp", "value=1000", "pause=0.05")
    begun = int(say(group[victim], r"in (-?\d+) resumed False")[1])
    assert begun < -15
    ends = [finished(one) for one in group]
    assert max(end[0] for end in ends) < 0 and [end[1:] for end in ends] == [[0, 0]] * 3
    # Each iteration that was pushed was applied once: the victim's last may have been applied and not pushed.
    assert -min(ends)[0] in range(400, 602)


@pytest.mark.slow
def test_a_server_that_is_killed_goes_on_from_the_checkpoint(daemon, run, tmp_path):
    checkpoints = f"checkpoint={tmp_path}/ckpt"
    group = [
        run(WORKER, daemon.address, rank, 2, 60, "asp", "pause=0.1", checkpoints)
        for rank in range(2)
    ]
    server = int(say(group[0], r"server (\d+)")[1])
    for one in group:
        say(one, r"pushed 5")
    daemon.syncctl("checkpoint", "job", "--wait")
    say(group[0], r"pushed \d+")
    for one in group:
        say(one, r"pushed 15")
    os.kill(server, signal.SIGKILL)
    ends = [finished(one) for one in group]
    for end, lost, dropped in ends:
        assert lost > 0 and dropped in (1, 2)
        assert end < 0
    assert -min(ends)[0] == 120 - max(end[1] for end in ends) - max(end[2] for end in ends)


@pytest.mark.slow
def test_a_server_that_is_killed_with_worker_0_goes_on_when_that_comes_back(daemon, run, tmp_path):
    options = ("asp", "pause=0.05", f"checkpoint={tmp_path}/ckpt")
    group = [run(WORKER, daemon.address, rank, 2, 100, *options) for rank in range(2)]
    server = int(say(group[0], r"server (\d+)")[1])
    for one in group:
        say(one, r"pushed 5")
    daemon.syncctl("checkpoint", "job", "--wait")
    for one in group:
        say(one, r"pushed 15")
    group[0].kill()
    os.kill(server, signal.SIGKILL)
    group[0] = run(WORKER, daemon.address, 0, 2, 100, *options, "value=1000")
    assert -30 < int(say(group[0], r"in (-?\d+) resumed True")[1]) <= -10
    for end, lost, dropped in map(finished, group):
        assert -200 < end < -100 and lost > 10 and dropped <= 1


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["bsp", "dssp:1-4", "specsync+ssp:2", "naive_wait:20+asp"])
def test_policies(daemon, run, policy):
    options = ["form=server"] if policy == "bsp" else []
    group = [run(WORKER, daemon.address, rank, 2, 10, policy, *options) for rank in range(2)]
    assert min(finished(one) for one in group)[0] == -20


@pytest.mark.slow
def test_without_a_checkpoint_a_killed_server_is_named(daemon, run):
    group = [run(WORKER, daemon.address, rank, 2, 2000, "asp", "pause=0.05") for rank in range(2)]
    server = int(say(group[0], r"server (\d+)")[1])
    for one in group:
        say(one, r"pushed 5")
    os.kill(server, signal.SIGKILL)
    for rank, one in enumerate(group):
        code, _, err = one.finish()
        assert code == 1
        assert f"job job, worker {rank}: the parameter server at 127.0.0.1:" in err
        assert "has ended, and there is no checkpoint to go on from" in err


@pytest.mark.slow
@pytest.mark.parametrize("server_dies", [False, True])
@pytest.mark.parametrize("first", [0, 1])
def test_a_group_that_is_started_again_goes_on_from_the_checkpoint(
    daemon, run, tmp_path, private, server_dies, first
):
    """Whether its server lives on or not, and whoever comes first."""
    arguments = (daemon.address,)
    options = ("asp", "pause=0.05", f"checkpoint={tmp_path}/ckpt")
    group = [run(WORKER, *arguments, rank, 2, 500, *options) for rank in range(2)]
    for one in group:
        say(one, r"pushed 5")
    daemon.syncctl("checkpoint", "job", "--wait")
    for one in group:
        say(one, r"pushed 25")
    for one in group:
        one.kill()
    if server_dies:
        for pid in servers(private.parent):
            os.kill(pid, signal.SIGKILL)
    again = {first: run(WORKER, *arguments, first, 2, 40, *options, "value=500")}
    say(again[first], r"in -?\d+ resumed True") if first == 0 else time.sleep(3)
    again[1 - first] = run(WORKER, *arguments, 1 - first, 2, 40, *options, "value=700")
    ends = [finished(one) for one in again.values()]
    for end, lost, dropped in ends:
        assert lost > 20 and dropped == 0
        assert -100 <= end < 0  # a worker may have been some iterations ahead at the checkpoint


@pytest.mark.slow
@pytest.mark.parametrize("server_dies", [False, True])
def test_a_group_that_is_started_again_without_a_checkpoint_begins_anew(
    daemon, run, private, server_dies
):
    group = [run(WORKER, daemon.address, rank, 2, 500, "asp", "pause=0.05") for rank in range(2)]
    for one in group:
        say(one, r"pushed 5")
    for one in group:
        one.kill()
    for pid in servers(private.parent) if server_dies else []:
        os.kill(pid, signal.SIGKILL)
    again = [run(WORKER, daemon.address, 1, 2, 10, "asp", "value=100")]
    time.sleep(4)  # it waits for worker 0, and takes nothing of the group before
    again.append(run(WORKER, daemon.address, 0, 2, 10, "asp", "value=100"))
    for one in again:
        assert int(say(one, r"in (-?\d+) resumed False")[1]) > 70
    assert min(finished(one) for one in again)[0] == 100 - 20


@pytest.mark.slow
def test_a_server_by_hand_over_tcp(daemon, run, tmp_path):
    secret = tmp_path / "secret"
    argv = [
        "-m",
        "syncd.torch.server",
        "--job",
        "job",
        "--listen",
        "127.0.0.1:0",
        "--secret",
        str(secret),
    ]
    child = subprocess.Popen([sys.executable, *argv], stderr=subprocess.PIPE, text=True)
    try:
        port = int(re.search(r"listening at 127.0.0.1:(\d+)", child.stderr.readline())[1])
        options = (f"server=127.0.0.1:{port}", f"server_secret={secret}", "shared_memory=0")
        group = [run(WORKER, daemon.address, rank, 2, 20, "ssp:2", *options) for rank in range(2)]
        assert min(finished(one) for one in group)[0] == -40
        assert secret.stat().st_mode & 0o777 == 0o600
        assert child.poll() is None
    finally:
        child.kill()
        child.wait()
        child.stderr.close()


def test_the_example(daemon):
    example = HERE.parent / "examples/torch_server.py"
    env = {"SYNCD_ADDR": daemon.address, "OMP_NUM_THREADS": "1"}
    argv = ["-m", "syncd.torchrun", "--rdzv-endpoint", daemon.address, "--rdzv-id", "example"]
    torchrun = Process(sys.executable, *argv, "--nproc-per-node", "2", example, env=env)
    try:
        code, out, err = torchrun.finish()
        assert code == 0, out + err
        for rank in range(2):
            assert f"worker {rank}: error " in out
    finally:
        torchrun.kill()
