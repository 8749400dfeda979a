"""Each form of syncd.torch under torchrun, whose workers crash and start anew one after the other: they go
on together, from the latest complete checkpoint.

SYNCD_TORCH_RUNS and SYNCD_TORCH_STAGGER as in test_resume.py."""

import json
import os
import statistics

import pytest

CRASHES = 2
ITERATIONS = 150
STAGGER_S = float(os.environ.get("SYNCD_TORCH_STAGGER", "2"))
FORMS = ["elastic_bsp:8", "ssp:3", "hop:ring_based,backup=1,max_ig=4"]


@pytest.mark.parametrize("seed", range(int(os.environ.get("SYNCD_TORCH_RUNS", "1"))))
@pytest.mark.parametrize("policy", FORMS)
def test_restarts_go_on_together(start, daemon, tmp_path, policy, seed):
    run = start("4", restarts=CRASHES)
    run.form(policy, ITERATIONS, tmp_path / "saved", STAGGER_S, CRASHES)
    for name in "abcd":
        run.start(name)
    assert [agent.wait() for agent in run.agents] == [0, 0, 0, 0], run.agents[0].text()[-3000:]
    crashes = run.events("crash")
    assert len(crashes) == CRASHES
    saved, fresh = 0, None
    for number in range(CRASHES + 1):
        begun = run.events("begins", launch=f"run/{number + 1}")
        assert [int(one["at"]) for one in begun] == 4 * [saved], f"start {number}: {begun}"
        assert {one["resumed"] for one in begun} == {str(number > 0)}
        loss = statistics.mean(float(one["loss"]) for one in begun)
        fresh = fresh or loss
        assert number == 0 or loss < fresh / 2, "not a model that has learnt"
        if number < CRASHES:
            saved = int(crashes[number]["saved"])
    done = run.events("done")
    assert len(done) == 4 and all(float(one["loss"]) < 0.1 for one in done), done
    (job,) = [one for one in json.loads(daemon.syncctl("jobs", "--json")) if one["name"] == "forms"]
    assert job["epoch"] == CRASHES + 1
