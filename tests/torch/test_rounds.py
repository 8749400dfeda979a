"""torchrun on syncd with real agents, a plain DDP script and a real daemon."""

import os
import random
import signal
import time

import pytest

from support import HAS_ENTRY_POINTS, TORCH, wait_until

LONG = 100_000  # iterations that nobody lives to see
small = pytest.mark.small  # of which tests/run --all runs


def codes(run):
    return [agent.wait() for agent in run.agents]


def rank_of(run, agent):
    """The rank of an agent's worker in the latest round that it has started in."""
    starts = [one for one in run.events("start") if int(one["pid"]) in agent.workers()]
    return int(starts[-1]["RANK"])


def agent_of_rank(run, rank):
    (found,) = [agent for agent in run.agents if rank_of(run, agent) == rank]
    return found


# ---- forming and ending


@small
def test_a_plain_script_forms_one_group_and_ends(start, daemon):
    run = start("3")
    for name in "abc":
        run.start(name)
    assert codes(run) == [0, 0, 0]
    assert sorted(one["RANK"] for one in run.events("start")) == ["0", "1", "2"]
    assert {one["launch"] for one in run.events("start")} == {"run/1"}
    done = run.events("done")
    assert len(done) == 3 and all(float(one["loss"]) < 0.01 for one in done)
    assert "finished" in daemon.log()


@pytest.mark.skipif(not HAS_ENTRY_POINTS, reason="this torch reads no entry points")
def test_both_launchers_find_the_backend(start):
    run = start("2")
    run.start("a")
    run.launcher = "syncd.torchrun"
    run.start("b")
    assert codes(run) == [0, 0]


def test_agents_that_start_late_are_one_group(start):
    run = start("2:4", conf="last_call=5s")
    for name in "abc":
        run.start(name)
        time.sleep(1)  # well below the last call
    assert codes(run) == [0, 0, 0]
    assert {one["WORLD_SIZE"] for one in run.events("start")} == {"3"}


# Interleaving: ten newcomers one a second are not ten restarts.
def test_newcomers_one_after_the_other_are_one_restart(start):
    run = start("2:6", conf="last_call=3s")
    run.train(LONG)
    run.start("a"), run.start("b")
    run.wait_for(2, "trains")
    for name in "cdef":
        run.start(name)
        time.sleep(0.5)
    run.wait_for(6, "trains", WORLD_SIZE=6)
    assert {one["launch"] for one in run.events("start")} == {"run/1", "run/2"}


# ---- deaths


@pytest.mark.parametrize("rank", [pytest.param(0, marks=small), 1])
def test_a_killed_agent_is_left_behind(start, daemon, rank):
    run = start("2:4")
    run.train(400)
    for name in "abc":
        run.start(name)
    run.wait_for(3, "trains")
    killed = agent_of_rank(run, rank)
    at = time.time()
    killed.kill_all()
    starts = run.wait_for(2, "start", since=at, WORLD_SIZE=2)
    print(f"kill to start: {max(float(one['t']) for one in starts) - at:.1f} s")
    run.agents.remove(killed)
    assert codes(run) == [0, 0]
    assert len(run.events("done", WORLD_SIZE=2)) == 2
    assert {one["launch"] for one in run.events("start")} == {"run/1", "run/2"}
    assert "was lost" in daemon.log(), "the cause is named"


def test_a_spare_takes_a_killed_agents_place(start, daemon):
    run = start("2:3")
    run.train(LONG)
    for name in "abc":
        run.start(name)
    run.wait_for(3, "trains")
    run.start("spare")
    wait_until(lambda: "it is a spare" in daemon.syncctl("workers", "rdzv.run"), "spare")
    assert len(run.events("start")) == 3, "nobody was restarted for a spare"
    at = time.time()
    run.agents[1].kill_all()
    starts = run.wait_for(3, "start", since=at)
    print(f"kill to start: {max(float(one['t']) for one in starts) - at:.1f} s")
    assert {one["WORLD_SIZE"] for one in starts} == {"3"}
    run.wait_for(3, "trains", since=at)


# As when its machine hangs: it is lost, comes back, and is a newcomer.
def test_a_stopped_agent_is_lost_and_comes_back(start):
    run = start("2:3")
    run.train(LONG)
    for name in "abc":
        run.start(name)
    run.wait_for(3, "trains")
    stopped = agent_of_rank(run, 2)
    workers = stopped.workers()
    at = time.time()
    os.kill(stopped.child.pid, signal.SIGSTOP)
    for pid in workers:
        os.kill(pid, signal.SIGKILL)
    run.wait_for(2, "trains", since=at, WORLD_SIZE=2)
    os.kill(stopped.child.pid, signal.SIGCONT)
    run.wait_for(3, "trains", since=at, WORLD_SIZE=3)


@pytest.mark.parametrize("moment", range(int(os.environ.get("SYNCD_TORCH_MOMENTS", "4"))))
def test_rank_0_may_die_at_any_moment_of_forming(start, moment):
    run = start("2:3")
    run.train(200)
    for name in "abc":
        run.start(name)
    # Rank 0 is the first in the order of names, which have the pids.
    doomed = min(run.agents, key=lambda agent: str(agent.child.pid))
    line = wait_until(lambda: "round_formed" in run.daemon.log(), "the first round")
    assert line
    time.sleep(moment * 0.15)
    doomed.kill_all()
    run.agents.remove(doomed)
    assert codes(run) == [0, 0]
    assert len(run.events("done", WORLD_SIZE=2)) == 2


# ---- ends


# Interleaving: A sits in the exit barrier, B's worker crashes at its last step, and B begins.
@small
def test_one_that_crashes_at_its_last_step_holds_nobody(start, tmp_path):
    run = start("2")
    run.train(20, "late=1@4", "crash=1@end")
    run.start("a"), run.start("b")
    at = time.time()
    ended = codes(run)
    assert sorted(ended) == [0, 1], "the one whose worker crashed must not end well"
    assert time.time() - at < 120, "nobody waits for torch's 300 s"
    assert len(run.events("start")) == 2, "nobody trains again who has finished"
    assert len(run.events("done")) == 1


# Interleaving: A and B finish, a spare C must neither train alone nor wait.
def test_a_spare_ends_when_the_others_have_finished(start, daemon):
    run = start("1:2")
    run.train(200)
    run.start("a"), run.start("b")
    run.wait_for(2, "trains")
    run.start("spare")
    wait_until(lambda: "it is a spare" in daemon.syncctl("workers", "rdzv.run"), "spare")
    assert codes(run) == [0, 0, 0]
    assert len(run.events("start")) == 2


def test_one_that_is_preempted_in_the_exit_barrier_holds_nobody(start):
    run = start("2")
    run.train(20, "late=1@6")
    run.start("a"), run.start("b")
    run.wait_for(1, "late")
    run.wait_for(1, "done")
    finished = agent_of_early(run)
    time.sleep(1)
    finished.child.send_signal(signal.SIGTERM)
    ended = codes(run)
    assert len(run.events("start")) == 2 and len(run.events("done")) == 2
    assert 0 in ended


def agent_of_early(run):
    """Whose worker has ended."""
    return wait_until(
        lambda: next((agent for agent in run.agents if not agent.workers()), None), "one has ended"
    )


def test_the_last_other_may_die_while_one_waits_at_the_end(start):
    run = start("2")
    run.train(20, "late=1@100000")
    run.start("a"), run.start("b")
    run.wait_for(1, "late")
    run.wait_for(1, "done")
    finished = agent_of_early(run)
    (other,) = [agent for agent in run.agents if agent is not finished]
    other.kill_all()
    at = time.time()
    assert finished.wait() == 0
    assert time.time() - at < 60, "it does not wait for torch's 300 s"


def test_a_failed_worker_without_restarts_is_told_as_failed(start, daemon):
    run = start("1:2", restarts=0)
    run.train(200, "crash=1@10")
    run.start("a"), run.start("b")
    assert 1 in codes(run)
    assert 'reason="failed: worker 1 ended with exit code ' in daemon.log()


# Interleaving: torchrun's SIGTERM.
def test_a_sigterm_is_told_as_a_preemption(start, daemon):
    run = start("1:2")
    run.train(LONG)
    run.start("a"), run.start("b")
    run.wait_for(2, "trains")
    at = time.time()
    run.agents[0].child.send_signal(signal.SIGTERM)
    assert run.agents[0].wait() != 0
    run.wait_for(1, "trains", since=at, WORLD_SIZE=1)
    assert 'reason="preempted: ' in daemon.log()
    assert "SignalException" in daemon.log()


# ---- the daemon's death


@small
def test_the_daemon_may_die_while_agents_wait_and_while_they_train(start, daemon):
    run = start("2")
    run.train(200)
    run.start("a")
    wait_until(lambda: "worker_joined" in daemon.log(), "one waits")
    daemon.kill()
    daemon.start()
    run.start("b")
    run.wait_for(2, "trains")
    daemon.kill()
    daemon.start()
    assert codes(run) == [0, 0]
    assert len(run.events("start")) == 2, "no round was formed anew"


# ---- all of it at random


@pytest.mark.parametrize("seed", range(int(os.environ.get("SYNCD_TORCH_RUNS", "1"))))
def test_agents_killed_and_started_at_random(start, tmp_path, seed):
    chance = random.Random(seed)
    run = start("2:4")
    enough = tmp_path / "enough"
    run.train(LONG, f"until={enough}")
    names = iter(range(1000))
    for _ in range(4):
        run.start(f"n{next(names)}")
    for _ in range(3):
        time.sleep(chance.uniform(0.5, 6))
        killed = chance.choice(run.agents)
        killed.kill_all()
        run.agents.remove(killed)
        time.sleep(chance.uniform(0, 3))
        run.start(f"n{next(names)}")

    def all_train():
        # Torch 1.13's own store ends an agent whose store's host dies with connections that it has not
        # taken: an operator starts another one.
        for agent in [one for one in run.agents if one.child.poll() == -signal.SIGABRT]:
            assert TORCH < (2, 0) and "Connection reset by peer" in agent.text()
            run.agents.remove(agent)
            run.start(f"n{next(names)}")
        living = {pid for agent in run.agents for pid in agent.workers()}
        return len(living & {int(one["pid"]) for one in run.events("trains", WORLD_SIZE=4)}) == 4

    wait_until(all_train, "four train together")
    enough.touch()
    ended = codes(run)
    assert ended == [0, 0, 0, 0]
    done = run.events("done")
    assert len(done) == 4 and all(float(one["loss"]) < 0.01 for one in done)
