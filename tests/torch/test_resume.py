"""Starts of all workers anew, one after the other: by torchrun, and without it. Each goes on from the
latest complete checkpoint, and none trains alone.

SYNCD_TORCH_RUNS=N      so many runs (default 1)
SYNCD_TORCH_STAGGER=S   each worker waits up to S seconds before it joins (default 2)"""

import os
import re
import subprocess

import pytest

from support import ROOT, TORCH, wait_until

CRASHES = 2
ITERATIONS = 120
STAGGER_S = float(os.environ.get("SYNCD_TORCH_STAGGER", "2"))


def goes_on(run, nodes):
    """That each start went on where the latest checkpoint was, all of it together; the last loss."""
    saved = 0
    for start in range(CRASHES + 1):
        now = {"launch": f"run/{start + 1}"}
        loaded = run.events("loaded", **now)
        assert [int(one["at"]) for one in loaded] == nodes * [saved], f"start {start}: {loaded}"
        assert [int(one["members"]) for one in loaded] == nodes * [nodes]
        if start < CRASHES:
            (saving,) = {one["at"] for one in run.events("saved", **now)}
            saved = int(saving)
            assert saved > int(loaded[0]["at"])
    done = run.events("done")
    assert [int(one["at"]) for one in done] == nodes * [ITERATIONS]
    (loss,) = {one["loss"] for one in done}
    return loss


@pytest.mark.small
@pytest.mark.parametrize("seed", range(int(os.environ.get("SYNCD_TORCH_RUNS", "1"))))
def test_torchruns_restarts_go_on_together(start, daemon, tmp_path, seed):
    run = start("4", restarts=CRASHES)
    run.resume(ITERATIONS, tmp_path / "saved", STAGGER_S, CRASHES)
    for name in "abcd":
        run.start(name)
    assert [agent.wait() for agent in run.agents] == [0, 0, 0, 0]
    loss = goes_on(run, 4)
    straight = start("1", restarts=0, name="straight")
    straight.resume(ITERATIONS, tmp_path / "straight", 0, 0)
    straight.start("e")
    assert straight.agents[0].wait() == 0
    assert {one["loss"] for one in straight.events("done")} == {loss}


@pytest.mark.skipif(TORCH < (2, 3), reason="torch before 2.3 has no async_save")
@pytest.mark.parametrize("form", ["dcp", "background"])
def test_torchs_own_checkpoints_go_on_together(start, daemon, tmp_path, form):
    run = start("2", restarts=CRASHES)
    run.resume(ITERATIONS, tmp_path / "saved", STAGGER_S, CRASHES, form)
    run.start("a"), run.start("b")
    assert [agent.wait() for agent in run.agents] == [0, 0], run.agents[0].text()[-3000:]
    goes_on(run, 2)
    assert daemon.syncctl("checkpoint", "resume", "--latest").count(".dcp") == 2


@pytest.mark.skipif(TORCH < (2, 3), reason="torch before 2.3 has no async_save")
def test_the_example_goes_on_where_it_was_killed(start, daemon, tmp_path):
    example = str(ROOT / "bindings/python/examples/dcp_checkpoint.py")
    reached = []

    def saves():
        try:
            return daemon.syncctl("checkpoint", "dcp", "--wait")
        except subprocess.CalledProcessError:  # the group is not whole, or not yet again
            return None

    for _ in range(2):
        run = start("2", restarts=0)
        run.script = [example, str(tmp_path / "saved"), "1000000"]
        agents = [run.start("a"), run.start("b")]
        wait_until(saves, "a checkpoint is complete")
        for agent in agents:
            agent.kill_all()
        reached.append(daemon.syncctl("checkpoint", "dcp", "--latest"))
    assert reached[0] != reached[1]
    run = start("2", restarts=0)
    run.script = [example, str(tmp_path / "saved"), "50"]
    run.start("a"), run.start("b")
    assert [agent.wait() for agent in run.agents] == [0, 0], run.agents[0].text()[-3000:]
    text = run.agents[0].text()
    assert "from 0 " not in text and re.search("from [0-9]+ to", text), text[-3000:]
