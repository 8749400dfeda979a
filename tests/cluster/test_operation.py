"""What operators get to see, and machines whose clocks or settings differ."""

import datetime
import json
import os
import shutil
import subprocess
import time

import pytest
import syncd
from support import Cluster, Etcd, Workers, program, wait_until
from test_failover import check, dies_and_returns, small

QUOTA = 64 << 20


def etcdctl(etcd, *words, **more):
    environment = {**os.environ, "ETCDCTL_API": "3"}
    command = ["etcdctl", f"--endpoints={','.join(etcd.endpoints)}", *words]
    return subprocess.run(command, env=environment, check=True, capture_output=True, **more).stdout


def metrics(member):
    return member.page("/metrics")[1]


@small
@pytest.mark.skipif(shutil.which("etcdctl") is None, reason="there is no etcdctl")
def test_pushes_are_refused_before_etcd_is_full(tmp_path):
    """At its quota etcd takes nothing: neither a checkpoint's record nor what makes room."""
    cluster = Cluster(tmp_path, Etcd(tmp_path), more=f"etcd_quota_bytes = {QUOTA}")
    try:
        leader = cluster.leader()
        with syncd.connect(cluster.address()) as client, client.join("job", "asp") as worker:
            worker.begin()
            worker.push()
            for number in range(45):
                etcdctl(cluster.etcd, "put", f"/other/{number}", input=(1 << 20) * b"x")
            wait_until(lambda: leader.said("etcd_fills"), "it notices")
            wait_until(lambda: leader.page("/readyz")[0] == 503, "it says so")
            worker.begin()
            with pytest.raises(syncd.Error) as refused:
                worker.push()
            assert refused.value.name == "SYNCD_E_STORE"
            assert "etcd fills" in cluster.status()
            assert "syncd_cluster_etcd_quota_bytes" in metrics(leader)

            etcdctl(cluster.etcd, "del", "--prefix", "/other/")
            at = json.loads(etcdctl(cluster.etcd, "get", "/", "--write-out=json"))["header"]
            etcdctl(cluster.etcd, "compact", str(at["revision"]))
            wait_until(lambda: leader.said("etcd_has_room"), "it notices")
            wait_until(lambda: leader.page("/readyz")[0] == 200, "it takes pushes again")
            worker.push()
        assert [push["iteration"] for push in cluster.pushes("job")] == [0, 1]
    finally:
        cluster.stop()


@small
def test_members_that_admit_others_are_told_apart(tmp_path):
    cluster = Cluster(tmp_path)
    try:
        assert "differ" not in cluster.status()
        leader = cluster.leader()
        other = next(member for member in cluster.members if member is not leader)
        other.kill()
        with open(other.config, "a") as config:
            config.write('[auth]\nadmin = ["uid:0"]\n')
        other.start()
        wait_until(lambda: leader.said("auth_differs"), "the leader warns")
        assert "differ" in cluster.status()
    finally:
        cluster.stop()


@small
def test_an_upgrade_is_finished_once(tmp_path):
    cluster = Cluster(tmp_path)
    try:
        config = str(cluster.members[0].config)
        assert "nothing to do" in cluster.syncctl("cluster", "finish-upgrade", "--config", config)
        for member in cluster.members:
            member.kill()
        wait_until(lambda: "\nmember " not in cluster.status(), "their leases end")
        argv = [program("syncctl"), "cluster", "finish-upgrade", "--config", config]
        done = subprocess.run(argv, capture_output=True, text=True)
        assert done.returncode == 1 and "no member is there" in done.stderr
    finally:
        cluster.stop()


def faked(by):
    """An environment in which CLOCK_REALTIME is off by so much."""
    said = subprocess.run(
        ["faketime", "-f", by, "env"], capture_output=True, text=True, check=True
    ).stdout
    lines = (line.partition("=") for line in said.splitlines())
    found = {name: value for name, _, value in lines if name in ("LD_PRELOAD", "FAKETIME")}
    return {**found, "FAKETIME_DONT_FAKE_MONOTONIC": "1", "FAKETIME_DONT_RESET": "1"}


def clock_of(member):
    """By how many seconds it is ahead, to the nearest minute."""
    wait_until(lambda: "\n" in member.log(), "it says something")
    stamp = member.log().partition(" ")[0].replace("Z", "+00:00")
    ahead = datetime.datetime.fromisoformat(stamp).timestamp() - time.time()
    return 60 * round(ahead / 60)


@small
@pytest.mark.skipif(shutil.which("faketime") is None, reason="there is no faketime")
def test_clocks_three_minutes_apart_lose_nothing(tmp_path):
    """Leadership goes over and back twice between clocks that differ: nobody is late, evicted or
    counted twice because of it."""
    cluster = Cluster(tmp_path)
    try:
        for member, by in zip(cluster.members, ("+180s", "-180s", "+0s")):
            member.kill()
            member.environment |= faked(by)
            member.log_file.unlink()
            member.start()
        cluster.leader()
        assert [clock_of(member) for member in cluster.members] == [180, -180, 0]
        workers = Workers(cluster.address(), policy="bsp")
        for _ in range(4):
            dies_and_returns(cluster, workers)
        check(cluster, workers.finish())
        for member in cluster.members:
            assert member.said("worker_lost") is None and member.said("worker_slow") is None
    finally:
        cluster.stop()
