"""A cluster whose jobs are spread over shards, each with a process of its own on each machine."""

import json
import re
import signal
import subprocess
import threading
import time

import pytest
from order import faults
from support import (
    PATIENCE_S,
    Cluster,
    Workers,
    free_base_ports,
    program,
    shard_of,
    syncd,
    wait_until,
)

small = pytest.mark.small  # of which tests/run --all runs
SHARDS = 2
JOBS = ["job", next(f"job-{i}" for i in range(99) if shard_of(f"job-{i}", 2) != shard_of("job", 2))]


@pytest.fixture
def cluster(tmp_path):
    made = Cluster(tmp_path, shards=SHARDS)
    yield made
    made.stop()


@pytest.fixture
def workers(cluster):
    """Of a job in each shard, in the shards' order."""
    return [Workers(cluster.address(), job) for job in sorted(JOBS, key=lambda j: shard_of(j, 2))]


def check(cluster, workers):
    for of_shard in workers:
        seen = of_shard.finish()
        found = faults(seen, cluster.pushes(seen.job))
        assert seen.acknowledged() and not found, found[:10]


@small
def test_a_shards_leader_is_killed_and_the_other_shard_goes_on(cluster, workers):
    for of_shard in workers:
        of_shard.first_grants(time.monotonic())
    others = cluster.leader(0)
    cluster.leader(1).kill()
    workers[1].first_grants(time.monotonic())
    assert cluster.leader(1).is_up()
    workers[0].first_grants(time.monotonic())
    assert cluster.leader(0) is others and others.log().count("leads") == 1
    check(cluster, workers)


@small
def test_commands_ask_each_shard(cluster, workers):
    for of_shard in workers:
        of_shard.first_grants(time.monotonic())
    jobs = json.loads(cluster.syncctl("--addr", cluster.address(), "jobs", "--json"))
    assert all(job["shard"] == shard_of(job["name"], SHARDS) for job in jobs)
    assert "  SHARD  " in cluster.syncctl("--addr", cluster.address(), "jobs")
    ids = {job["name"]: job["id"] for job in jobs}
    assert ids.keys() == set(JOBS)
    for name, number in ids.items():
        assert number % SHARDS == shard_of(name, SHARDS)
        for wanted in (name, f"#{number}"):
            cluster.syncctl("--addr", cluster.address(), "workers", wanted)
    status = cluster.status()
    assert re.search(r"^cluster lab, generation 1, 2 shards\netcd .* MiB\nshard 0\nleader m", status), status
    assert status.count("\nleader m") == SHARDS
    wait_until(lambda: cluster.status().count("  could lead  ") == 2 * SHARDS, "all follow")
    assert "warning" not in cluster.status()
    gone = next(member for member in cluster.of_shard(1) if member is not cluster.leader(1))
    gone.kill()
    said = f"warning: member '{gone.name}' is missing in shard 1:"
    wait_until(lambda: said in cluster.status(), "its lease has ended")
    check(cluster, workers)


@small
def test_one_client_has_workers_in_both(cluster):
    with syncd.connect(cluster.address(), reconnect_timeout=PATIENCE_S) as client:
        workers = [client.join(job, "asp", rank=0, world_size=1) for job in JOBS]
        for worker in workers:
            worker.begin()
            worker.push()
        cluster.leader(shard_of(JOBS[0], SHARDS)).signal(signal.SIGTERM)
        for worker in workers:
            assert worker.begin().iteration == 1
            worker.push()
            worker.leave()
    for job in JOBS:
        assert len(cluster.pushes(job)) == 2


def test_all_leaders_die_at_once(cluster, workers):
    for of_shard in workers:
        of_shard.first_grants(time.monotonic())
    for leader in [cluster.leader(shard) for shard in range(SHARDS)]:
        leader.kill()
    for of_shard in workers:
        of_shard.first_grants(time.monotonic())
    check(cluster, workers)


def test_a_drained_machine_hands_over_all_that_it_leads(cluster, workers):
    configured = ("--config", str(cluster.members[0].config))
    for of_shard in workers:
        of_shard.first_grants(time.monotonic())
    for shard in range(SHARDS):
        cluster.syncctl("cluster", "move", "--absent", str(shard), "m1", *configured)
    wait_until(lambda: all(m.leads() for m in cluster.members if m.name == "m1"), "m1 leads both")
    cluster.syncctl("cluster", "drain", "m1", *configured)
    wait_until(lambda: not any(m.leads() for m in cluster.members if m.name == "m1"), "m1 gives up")
    for of_shard in workers:
        of_shard.first_grants(time.monotonic())
    check(cluster, workers)


def test_machines_that_come_get_their_share(tmp_path):
    cluster = Cluster(tmp_path, machines=1, shards=4)
    try:
        jobs = {shard_of(f"job-{i}", 4): f"job-{i}" for i in range(99)}
        workers = [Workers(cluster.address(), jobs[shard], "bsp") for shard in range(4)]
        for of_shard in workers:
            of_shard.first_grants(time.monotonic())
        since = time.monotonic()
        cluster.start(1)
        cluster.start(2)

        def leaders():
            status = json.loads(cluster.status("--json"))
            return [shard["leader"] for shard in status["shards"]]

        wait_until(
            lambda: sorted(leaders().count(f"m{i}") for i in range(3)) == [1, 1, 2], "all have some"
        )
        print(f"4 shards are spread over 3 machines after {time.monotonic() - since:.0f} s")
        for of_shard in workers:
            of_shard.first_grants(time.monotonic())
            print(f"longest between two grants of a worker: {of_shard.longest_pause():.2f} s")
        # Each moved once, to the member that was named, and stays there.
        last = leaders()
        for shard in range(4):
            given = [re.findall(r" hands_over to=(\w+)", m.log()) for m in cluster.of_shard(shard)]
            assert sum(given, []) == ([] if last[shard] == "m0" else [last[shard]])
        check(cluster, workers)
    finally:
        cluster.stop()


def refusal(cluster, *flags, **settings):
    """What another process with the first one's configuration, and these, says before it ends."""
    done = subprocess.run(
        [program("syncd"), "--config", str(cluster.members[0].config), *flags],
        env={"SYNCD_STORE_PATH": str(cluster.directory / "other"), **settings},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 2
    return done.stderr


def test_a_shard_that_there_is_not_is_refused(cluster):
    assert "cluster 'lab' has 2 shards: 0 to 1" in refusal(cluster, SYNCD_CLUSTER_SHARD="2")


def test_ports_that_would_meet_are_refused(cluster):
    port = free_base_ports(1, 2)[0]
    said = refusal(cluster, "--tcp", f"127.0.0.1:{port}", "--admin", f"127.0.0.1:{port + 1}")
    meet = "listen.control are 1 apart, and the processes of cluster 'lab' add 0 to 1"
    assert meet in said
    config = cluster.directory / "close.toml"
    config.write_text(
        f'[listen]\ntcp = "127.0.0.1:{port}"\nadmin = "127.0.0.1:{port + 1}"\n'
        f'[cluster]\nname = "lab"\netcd = "{cluster.etcd.endpoints[0]}"\n'
    )
    argv = [program("syncctl"), "cluster", "init", "--shards", "2", "--config", str(config)]
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.returncode == 2 and meet in done.stderr


def test_an_address_that_clients_cannot_be_sent_to_is_refused(cluster):
    port = free_base_ports(1, 2)[0]
    said = refusal(cluster, "--tcp", f"0.0.0.0:{port}", "--admin", "off")
    assert "set cluster.advertise to HOST:PORT" in said


@small
def test_workers_are_sent_on_over_tls(tmp_path):
    tls = tmp_path / "tls"
    make = [program("syncctl"), "tls", "init", str(tls), "--host", "127.0.0.1", "--client", "w"]
    subprocess.run(make, check=True, capture_output=True)
    more = f'[tls]\ncertificate = "{tls}/server.crt"\nkey = "{tls}/server.key"\n'
    more += f'client_ca = "{tls}/ca.crt"\n'
    cluster = Cluster(tmp_path, shards=SHARDS, more=more)
    shown = {"ca_file": tls / "ca.crt", "certificate_file": tls / "w.crt", "key_file": tls / "w.key"}
    try:
        addresses = ",".join(f"tls:{address}" for address in cluster.addresses)
        with syncd.connect(addresses, reconnect_timeout=PATIENCE_S, **shown) as client:
            workers = [client.join(job, "asp", rank=0, world_size=1) for job in JOBS]
            for _ in range(2):
                for worker in workers:
                    worker.begin()
                    worker.push()
                for shard in range(SHARDS):
                    cluster.leader(shard).kill()
            assert [worker.begin().iteration for worker in workers] == [2, 2]
    finally:
        cluster.stop()


def test_clients_wait_for_a_shard_that_nobody_leads(cluster):
    job = JOBS[0]
    members = cluster.of_shard(shard_of(job, SHARDS))
    for member in members:
        member.kill()
    granted = threading.Event()

    def train():
        with syncd.connect(cluster.address(), reconnect_timeout=PATIENCE_S) as client:
            with client.join(job, "asp", rank=0, world_size=1) as worker:
                worker.begin()
                granted.set()

    thread = threading.Thread(target=train, daemon=True)
    thread.start()
    # The members of the other shard are there, and send it nowhere.
    assert not granted.wait(1)
    members[0].start()
    assert granted.wait(PATIENCE_S)
    thread.join(PATIENCE_S)
