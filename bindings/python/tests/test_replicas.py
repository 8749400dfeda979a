"""Replicas of several ranks, which average as one worker of the job each."""

import importlib.util
import os
import re
import signal
import socket

import pytest
import torch

import syncd
import syncd.torch as st
from test_averaging_processes import in_common, results

REPLICAS = RANKS = 2
ENDLESS = 10**6
has_parts = pytest.mark.skipif(
    importlib.util.find_spec("torch.distributed.tensor") is None, reason="DTensors take torch 2"
)
has_fsdp = pytest.mark.skipif(
    tuple(int(one) for one in torch.__version__.split(".")[:2]) < (2, 14),
    reason="FSDP 2 on CPUs was tried with torch 2.14, and takes later than 2.6",
)
KINDS = ["copies", pytest.param("parts", marks=has_parts), pytest.param("fsdp", marks=has_fsdp)]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def start(daemon, run):
    """start(kind, replica, averagings) gives the processes of its ranks."""

    def start(kind, replica, averagings, value=0, ranks=RANKS, checkpoint=""):
        env = {
            "SYNCD_ADDR": daemon.address,
            "WORLD_SIZE": str(ranks),
            "CHECKPOINT": str(checkpoint),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(free_port()),
            "GLOO_SOCKET_IFNAME": "lo",
            "USE_LIBUV": os.environ.get("USE_LIBUV", "0"),
        }
        arguments = ("replica_worker.py", kind, replica, REPLICAS, averagings, value)
        return [run(*arguments, env={**env, "RANK": str(rank)}) for rank in range(ranks)]

    return start


@pytest.mark.parametrize("kind", KINDS)
def test_ranks_average_with_those_of_their_place(daemon, start, kind):
    replicas = [start(kind, replica, 20, value=replica) for replica in range(REPLICAS)]
    found = [[results(rank) for rank in replica] for replica in replicas]
    for place in range(RANKS):
        assert 20 in in_common([replica[place] for replica in found])
    if kind != "copies":
        assert found[0][0][20] != found[0][1][20], "each rank has parts of its own"
    else:
        assert found[0][0] == found[0][1]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("killed", range(RANKS))
def test_one_that_loses_a_rank_comes_back_with_the_others_parameters(daemon, start, kind, killed):
    first, second = (start(kind, replica, ENDLESS) for replica in range(REPLICAS))
    for one in first + second:
        one.wait_for("own 3")
    second[killed].child.send_signal(signal.SIGKILL)
    other = second[1 - killed]
    assert other.child.wait() != 0, "it does not go on alone"
    for one in first:
        one.wait_for("own 30")
    second = start(kind, 1, ENDLESS, 10**6)
    for one in second:
        one.wait_for("own 5")
    daemon.syncctl("job", "stop", "replicas")
    found = [[results(rank) for rank in replica] for replica in (first, second)]
    for place in range(RANKS):
        assert len(in_common([replica[place] for replica in found])) >= 4
        assert all(abs(value) < 1000 for value in found[1][place].values()), "a random model"


def test_models_that_differ_in_one_place_are_refused_by_name(daemon, start):
    replicas = [start("swapped", replica, 20) for replica in range(REPLICAS)]
    for rank in (one for replica in replicas for one in replica):
        code, _, err = rank.finish()
        assert code != 0
        assert "the model of worker 1 differs from worker 0's: it has rank 1: b.weight [8, 8] float32" in err
        assert "where worker 0 has rank 1: 0.weight" in err


@pytest.mark.parametrize("saves", [False, True])
@pytest.mark.parametrize("fault", ["dies", "raises", "leaves"])
def test_a_rank_at_fault_ends_its_replica_and_holds_nobody_up(daemon, start, tmp_path, fault, saves):
    directory = tmp_path / "saved" if saves else ""
    first, second = (start(fault, replica, ENDLESS, checkpoint=directory) for replica in range(REPLICAS))
    code, _, err = second[0].finish()
    assert code != 0, err
    # The timeout of an averaging, 120 s, is beyond the patience.
    for one in first:
        one.wait_for("own 30")
    daemon.syncctl("job", "stop", "replicas")
    assert all(results(one) for one in first)


def saved(directory):
    """Of the only checkpoint there: what each rank of the replica has saved."""
    (folder,) = directory.iterdir()
    return [torch.load(folder / f"rank{rank}.pt") for rank in range(RANKS)]


def training(start, kind, directory):
    """All ranks, each of which has had three averages."""
    replicas = [start(kind, replica, ENDLESS, checkpoint=directory) for replica in range(REPLICAS)]
    ranks = [one for replica in replicas for one in replica]
    for one in ranks:
        one.wait_for("own 3")
    return ranks


def go_on(daemon, start, kind, directory):
    """Replicas with other models, which all are to continue from the checkpoint there."""
    before = saved(directory)[0]["form"]["averagings"]
    replicas = [start(kind, replica, ENDLESS, 10**6, checkpoint=directory) for replica in range(REPLICAS)]
    for rank in (one for replica in replicas for one in replica):
        rank.wait_for("own 3")
    daemon.syncctl("job", "stop", "replicas")
    found = [[results(rank) for rank in replica] for replica in replicas]
    for place in range(RANKS):
        assert len(in_common([replica[place] for replica in found])) >= 2
        for replica in found:
            assert min(replica[place]) in (before, before + 1), "averagings count on"
            assert all(abs(value) < 1000 for value in replica[place].values()), "the other model"


@pytest.mark.parametrize("kind", KINDS)
def test_they_continue_from_their_checkpoint(daemon, start, tmp_path, kind):
    directory = tmp_path / "saved"
    ranks = training(start, kind, directory)
    daemon.syncctl("checkpoint", "replicas", "--wait")
    for one in ranks:
        one.child.kill()
    states = [state["model"] for state in saved(directory)]
    sizes = [sum(one.numel() for one in state.values()) for state in states]
    whole = 2 * (8 * 8 + 8)
    assert sizes == RANKS * [whole] if kind == "copies" else all(size < whole for size in sizes)
    go_on(daemon, start, kind, directory)


def test_sigterm_ends_all_with_a_checkpoint(daemon, start, tmp_path):
    directory = tmp_path / "saved"
    ranks = training(start, "copies", directory)
    for one in reversed(ranks):  # mates first: they must not go before it is saved
        one.child.send_signal(signal.SIGTERM)
    for one in ranks:
        code, _, err = one.finish()
        assert code == 143, err
    go_on(daemon, start, "copies", directory)


def test_ranks_that_are_to_save_otherwise_are_refused_by_name(start, tmp_path):
    for one in start("unlike", 1, ENDLESS, checkpoint=tmp_path / "saved"):
        code, _, err = one.finish()
        assert code != 0
        assert "checkpoint= and state= of rank 1 are (None, []), and of rank 0 ('/" in err, err


def test_as_many_ranks_continue_as_have_saved(daemon, start, tmp_path):
    directory = tmp_path / "saved"
    ranks = training(start, "copies", directory)
    daemon.syncctl("checkpoint", "replicas", "--wait")
    for one in ranks:
        one.child.kill()
    for ranks in (1, 3):
        others = start("copies", 0, ENDLESS, ranks=ranks, checkpoint=directory)
        for one in others:
            code, _, err = one.finish()
            assert code != 0
            wanted = f"saved by a replica of 2 ranks, and this one has {ranks}|there is no .*rank2.pt"
            assert re.search(wanted, err), err


def test_what_is_not_allowed_is_refused_at_once(monkeypatch):
    monkeypatch.delenv("SYNCD_ADDR", raising=False)
    placed = {"rank": 0, "world_size": 2}
    for options, message in [
        ({}, "replica=True without rank= and world_size="),
        (placed, "replica=True without the address of a daemon"),
        ({**placed, "address": "127.0.0.1:1"}, "replica=True without torch.distributed"),
    ]:
        with pytest.raises(syncd.Error, match=message):
            st.run("bsp", torch.nn.Linear(1, 1), replica=True, **options)
