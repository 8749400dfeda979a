"""torchrun's agents, who meet by a cluster: its leader dies while their workers train."""

import collections
import sys
import time

import pytest
from support import PATIENCE_S, Cluster, Process, environment_of_torch, wait_until

pytest.importorskip("torch")

# Makes a file that says that it is there. Trains until there is a file "end". Rank 0 of the round that
# a file "fail" names fails.
WORKER = """
import os, pathlib, time
import torch.distributed
torch.distributed.init_process_group("gloo")
rank, number = os.environ["RANK"], os.environ["SYNCD_LAUNCH"].partition("/")[2]
here = pathlib.Path(__file__).parent
(here / f"round-{number}-{rank}").touch()
fail = here / "fail"
ends = torch.zeros(1)
while not ends:  # together
    torch.distributed.all_reduce(ends.fill_((here / "end").exists()))
    if rank == "0" and fail.exists() and fail.read_text() == number:
        raise SystemExit("fails as it was told")
    time.sleep(0.05)
"""


@pytest.fixture
def cluster(tmp_path):
    made = Cluster(tmp_path)
    yield made
    made.stop()


def start_agent(cluster, name, script):
    argv = [sys.executable, "-m", "syncd.torchrun", "--nnodes=2", "--nproc-per-node=1"]
    argv += ["--max-restarts=3"]
    argv += ["--rdzv-backend=syncd", f"--rdzv-endpoint={cluster.address()}", "--rdzv-id=run"]
    return Process([*argv, str(script)], cluster.directory / f"{name}.log", environment_of_torch())


@pytest.mark.parametrize("leaderless", [False, True])
def test_agents_form_a_second_round_at_the_new_leader(cluster, leaderless):
    """`leaderless`: the worker fails before another member leads."""
    work = cluster.directory / "work"
    work.mkdir()
    script = work / "train.py"
    script.write_text(WORKER)
    agents = [start_agent(cluster, name, script) for name in "ab"]

    def logs():
        return "".join(f"\n== {agent.log_file.name}\n{agent.log()}" for agent in agents)

    def trains(after):
        """The number of a later round in which both train; 0: there is none yet."""
        assert all(agent.is_up() for agent in agents), logs()
        there = collections.Counter(int(path.name.split("-")[1]) for path in work.glob("round-*"))
        return max((number for number, n in there.items() if n == 2 and number > after), default=0)

    try:
        first = wait_until(lambda: trains(0), "a round trains")
        cluster.leader().kill()
        since = time.monotonic()
        if not leaderless:
            cluster.leader()
        (work / "new").write_text(str(first))
        (work / "new").rename(work / "fail")
        wait_until(lambda: trains(first), "the next round trains")
        print(f"SIGKILL to the next round: {time.monotonic() - since:.2f} s")
        (work / "end").touch()
        assert [agent.child.wait(PATIENCE_S) for agent in agents] == [0, 0], logs()
        assert "fails as it was told" in logs(), "the fail-over alone broke the first round"
    finally:
        (work / "end").touch()  # for workers whose agent is killed
        for agent in agents:
            agent.kill()
