"""Coordinated: several processes that average over gloo, and restarts with a parameter server."""

import os
import re
import socket
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
import torch

import syncd
import syncd.torch
from syncd.torch._run import form_of
from conftest import HERE
from server_parts import in_thread

EXAMPLE = HERE.parent / "examples/torch_local_sgd.py"
BARRIERS = HERE.parents[2] / "tests/golden/policies/barriers.txt"


# Debian builds PyTorch without libuv, which its TCP stores have asked for since 2.4.
os.environ.setdefault("USE_LIBUV", "0")


@pytest.mark.parametrize(
    "found, message",
    [
        ("raise ModuleNotFoundError('no torch', name='torch')", "and this Python has none: install it with"),
        ("__version__ = '1.12.1+cu116'", "and this one is 1.12.1+cu116: install it with"),
    ],
)
def test_what_is_missing_is_said_at_the_import(tmp_path, found, message):
    (tmp_path / "torch.py").write_text(found)
    path = os.pathsep.join([str(tmp_path), str(HERE.parent / "src")])
    done = subprocess.run(
        [sys.executable, "-c", "import syncd.torch"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    *_, last = done.stderr.splitlines()
    assert last.startswith(f"ImportError: syncd.torch needs PyTorch 1.13 or later, {message}"), done.stderr


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def train_together(daemon, run, policy, workers, averagings):
    environment = {
        "SYNCD_ADDR": daemon.address,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "GLOO_SOCKET_IFNAME": "lo",
        "USE_LIBUV": os.environ["USE_LIBUV"],
    }
    processes = [
        run(EXAMPLE, rank, workers, averagings, policy, env=environment) for rank in range(workers)
    ]
    for rank, process in enumerate(processes):
        code, out, err = process.finish()
        assert code == 0, out + err
        assert f"worker {rank}: {averagings} averagings" in out


def test_local_sgd_learns_together(daemon, run):
    train_together(daemon, run, "elastic_bsp:8", workers=2, averagings=12)


@pytest.mark.slow  # every process takes seconds to import torch
@pytest.mark.parametrize("policy", ["bsp", "bsp:4", "elastic_bsp:8"])
def test_local_sgd_of_more_workers(daemon, run, policy):
    train_together(daemon, run, policy, workers=3, averagings=60 if policy != "bsp" else 200)


@pytest.fixture
def worker(daemon):
    with syncd.connect(daemon.address) as client:
        with client.join("job", "asp", rank=0) as joined:
            yield joined


@pytest.fixture
def group():
    store = f"tcp://127.0.0.1:{free_port()}"
    torch.distributed.init_process_group("gloo", store, rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


class Advised:
    """A worker whom the daemon advises to restart after so many questions; it notes what it is
    told."""

    policy, world_size = "specsync+asp", 1

    def __init__(self, questions):
        self.questions, self.calls = questions, []

    def begin(self, timeout=None):
        return syncd.Step(0, True, False, False, False, 0)

    def should_resync(self):
        self.questions -= 1
        return self.questions == 0

    def restarted(self):
        self.calls.append("restarted")

    def push(self, *arguments, **options):
        self.calls.append(("push", arguments, options))
        return syncd.Pushed(0, False)


def test_the_loop_of_the_documentation_follows_the_advice():
    worker, model = Advised(questions=2), torch.nn.Linear(2, 1)
    coord = syncd.torch.Coordinated(worker, model, pull=lambda: worker.calls.append("pull"))
    coord.begin()
    computed = 0
    while True:
        for _ in range(3):
            model(torch.ones(1, 2)).sum().backward()
            computed += 1
            if coord.should_abort():
                break
        else:
            break
        coord.restart()
        assert all(parameter.grad is None for parameter in model.parameters())
    coord.push(loss=torch.tensor(0.5), samples=3)
    assert computed == 2 + 3
    assert worker.calls == ["pull", "restarted", "pull", ("push", (0.5, 3), {"bytes": 12})]


def test_the_mean_over_kinds_of_tensors(worker, group):
    tensors = [torch.ones(2, 2), torch.full((3,), 2.0, dtype=torch.float64), torch.tensor(3.0)]
    coord = syncd.torch.Coordinated(worker, tensors, every=2)
    seen = []
    for step in coord.steps(6):
        seen.append(coord.averaged)
        coord.push(loss=1.0)
    assert seen == [0, 0, 1, 1, 2, 2] and coord.averaged == 3
    assert [tensor.sum().item() for tensor in tensors] == [4, 6, 3]


def test_what_cannot_work_is_refused(worker, group):
    model = torch.nn.Linear(1, 1)
    for options, message in [
        ({}, "asp has no synchronization that all workers share"),
        ({"every": 0}, "every=0; allowed"),
        ({"every": 1, "pull": print}, "exclude each other"),
    ]:
        with pytest.raises(syncd.Error, match=message):
            syncd.torch.Coordinated(worker, model, **options)
    with pytest.raises(syncd.Error, match="no parameters"):
        syncd.torch.Coordinated(worker, [], every=1)


def test_without_a_process_group(worker):
    with pytest.raises(syncd.Error, match="init_process_group"):
        syncd.torch.Coordinated(worker, torch.nn.Linear(1, 1), every=1)


def test_steps_are_numbers_and_calls_of_other_forms_are_named(daemon):
    model = torch.nn.Linear(2, 1)
    loader = [torch.ones(4, 2)] * 2
    with syncd.torch.run(
        "bsp", model, job="numbers", rank=0, world_size=1, address=daemon.address
    ) as job:
        with pytest.raises(syncd.Error, match=r"job.push\(\) outside of `for step, batch in"):
            job.push()
        seen = []
        for step, _ in job.steps(loader, iterations=3):
            with pytest.raises(syncd.Error, match=r"job.mix\(\) under bsp; .* job.push\(\) there"):
                job.mix()
            seen.append(f"{step} {step % 2}")
            job.push(loss=1.0)
    assert seen == ["0 0", "1 1", "2 0"]


def test_a_second_training_of_that_name_is_refused(daemon, monkeypatch):
    monkeypatch.setattr("syncd.torch._job._RANK_TIMEOUT_S", 0)
    model = torch.nn.Linear(1, 1)
    options = {"job": "twice", "rank": 0, "world_size": 1, "address": daemon.address}
    with syncd.torch.run("bsp", model, **options) as job:
        with pytest.raises(syncd.Error, match="job 'twice'.* worker 0") as refused:
            with syncd.torch.run("bsp", torch.nn.Linear(1, 1), **options):
                pass
        assert refused.value.code == syncd.Status.E_RANK_TAKEN
        assert [step for step, _ in job.steps(iterations=2) if job.push(loss=1.0)] == [0, 1]


def test_a_progress_bar_tells_rate_waiting_and_for_whom(daemon, monkeypatch):
    told = []

    class Bar:
        def __init__(self, **options):
            told.append(options["desc"])

        def __enter__(self):
            return self

        def __exit__(self, *_):
            told.append("ends")

        def set_postfix_str(self, text, refresh=True):
            told.append(text)

        def update(self):
            told.append("one more")

    monkeypatch.setattr("syncd.torch._progress.tqdm", SimpleNamespace(tqdm=Bar))
    options = {"job": "bar", "rank": 0, "world_size": 1, "address": daemon.address}
    with syncd.torch.run("bsp", torch.nn.Linear(1, 1), progress=True, **options) as job:
        for _ in job.steps(iterations=2):
            job.worker._on_wait("waiting for worker 1 (host)")
            job.push(loss=1.0)
    assert told[0] == "bar" and told[-1] == "ends"
    assert told.count("one more") == told.count("waiting for worker 1 (host)") == 2
    assert all(re.fullmatch(r"waiting \d+%|waiting for .*|one more", text) for text in told[1:-1]), told


def test_who_waits_for_the_beginning_hears_once_that_the_others_may_have_finished(daemon, caplog, monkeypatch):
    """As the last one does that was lost, and comes back after that: its job is another one."""
    monkeypatch.setattr("syncd.client._SAY_S", 0.01)
    caplog.set_level("WARNING", "syncd")
    model = torch.nn.Linear(1, 1)
    options = {"job": "late", "rank": 1, "world_size": 2, "address": daemon.address}
    with syncd.torch.run("bsp", model, **options) as job:
        waiting = in_thread(lambda: list(job.steps(iterations=1)))

        def said():
            return [one.getMessage() for one in caplog.records if "not joined" in one.getMessage()]

        while len(said()) < 2:
            time.sleep(0)
        daemon.syncctl("job", "stop", "late")
        waiting()
    first, *others = said()
    assert first.endswith("which waits for all workers: end it, or start them, too")
    assert not any("have finished" in one for one in others)


@pytest.mark.parametrize("policy", ["bsp:x", "bsp:0"])
def test_the_daemon_refuses_what_it_cannot_read(daemon, policy):
    job = syncd.torch.run(policy, torch.nn.Linear(1, 1), job="odd", rank=0, world_size=1, address=daemon.address)
    with pytest.raises(syncd.Error, match=policy):
        job.__enter__()


@pytest.mark.parametrize(
    "policy",
    [
        "specsync+elastic_bsp:8", "specsync+bsp", "specsync+naive_wait:2+asp", "naive_wait:2+hop:ring",
        "specsync+hop:ring", "asp+asp", "bsp+asp", "hop:ring+asp", "gather:2", "asp+", "",
    ],
)  # fmt: skip
def test_a_policy_that_no_form_runs_is_refused_at_once(policy):
    with pytest.raises(syncd.Invalid, match="allowed: bsp, elastic_bsp, .*; specsync.BASE with asp, ssp, dssp as"):
        form_of(policy)


def test_which_policies_have_barriers():
    """The daemon's own traits are compared with the same table (traits_test.cpp)."""
    lines = BARRIERS.read_text(encoding="utf-8").splitlines()
    rows = [line.split() for line in lines if line and not line.startswith("#")]
    assert len(rows) >= 12
    for policy, told, period in rows:
        expected = (told == "told", int(period) or None)
        assert syncd.torch._coordinated._meetings(policy) == expected, policy
        base = policy.split("+")[-1].split(":")[0].split(",")[0]
        form = {"hop": "neighbours", "notify_ack": "neighbours"}.get(base, "server")
        if base in ("bsp", "elastic_bsp") and "+" not in policy:
            form = "averaging"
        assert form_of(policy) == form, policy
    assert syncd.torch._coordinated._meetings("bspx") == (False, None)
