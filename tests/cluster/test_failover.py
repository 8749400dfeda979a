"""Members of a cluster that are killed, stopped, cut off and started, while workers push.

SYNCD_FAILOVER_RUNS=N     leaders that are killed in one run (default 3); it prints how long each took
SYNCD_FAILOVER_LEASE_S=N  the lease (default 5)
"""

import base64
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import statistics
import subprocess
import time
import urllib.error
import urllib.request

import pytest
import syncd
from order import faults
from support import (
    HERE,
    LEASE_S,
    PATIENCE_S,
    Cluster,
    Etcd,
    Member,
    Process,
    Workers,
    free_ports,
    program,
    wait_until,
)

small = pytest.mark.small  # of which tests/run --all runs


@pytest.fixture
def cluster(tmp_path):
    made = Cluster(tmp_path)
    yield made
    made.stop()


def check(cluster, seen):
    assert seen.acknowledged()
    found = faults(seen, cluster.pushes(seen.job))
    assert not found, found[:10]


@small
def test_leaders_are_killed(cluster):
    workers = Workers(cluster.address())
    behind_barriers = Workers(cluster.address(), "barriers", "bsp")
    took = []
    for _ in range(int(os.environ.get("SYNCD_FAILOVER_RUNS", "3"))):
        leader = cluster.leader()
        workers.first_grants(time.monotonic())
        since = time.monotonic()
        leader.kill()
        took.append(workers.first_grants(since))
        behind_barriers.first_grants(since)
        leader.start()
    print(f"SIGKILL to the next grant of all: median {statistics.median(took):.2f} s, "
          f"most {max(took):.2f} s of {len(took)}")
    check(cluster, workers.finish())
    check(cluster, behind_barriers.finish())


@small
def test_a_leader_that_is_stopped_for_longer_than_its_lease_follows(cluster):
    workers = Workers(cluster.address())
    leader = cluster.leader()
    workers.first_grants(time.monotonic())
    leader.signal(signal.SIGSTOP)
    workers.first_grants(time.monotonic())
    leader.signal(signal.SIGCONT)
    wait_until(lambda: "deposed" in leader.log(), "the one that was stopped notices it")
    wait_until(lambda: leader.log().rstrip().count("leader_seen") > 0, "it follows")
    seen = workers.finish()
    assert cluster.leader() is not leader
    check(cluster, seen)


@small
def test_a_leader_goes_in_good_order(cluster):
    workers = Workers(cluster.address())
    leader = cluster.leader()
    workers.first_grants(time.monotonic())
    since = time.monotonic()
    leader.signal(signal.SIGTERM)
    took = workers.first_grants(since)
    assert leader.child.wait() == 0, leader.log()
    print(f"SIGTERM to the next grant of all: {took:.2f} s")
    check(cluster, workers.finish())


@small
def test_a_leader_is_drained_and_the_shard_moved(cluster):
    workers = Workers(cluster.address())
    configured = ("--config", str(cluster.members[0].config))
    leader = cluster.leader()
    workers.first_grants(time.monotonic())
    since = time.monotonic()
    cluster.syncctl("cluster", "drain", leader.name, *configured)
    wait_until(lambda: cluster.leader() is not leader, "another leads")
    print(f"drained to the next grant of all: {workers.first_grants(since):.2f} s")
    wait_until(lambda: leader.page("/readyz") == (503, "it is drained\n"), "it follows, and says so")
    assert pathlib.Path(f"/proc/{leader.child.pid}/comm").read_text() == "syncd\n"
    assert re.search(rf"member {leader.name} .* drains  ", cluster.status())

    said = cluster.syncctl("cluster", "move", "0", leader.name, *configured)
    assert f"member '{leader.name}' is drained: the shard does not go there before" in said
    workers.first_grants(time.monotonic())
    assert cluster.leader() is not leader, "it drains"
    cluster.syncctl("cluster", "drain", "--undo", leader.name, *configured)
    wait_until(lambda: leader.leads(), "it leads again, as is wanted")
    workers.first_grants(time.monotonic())
    assert f"leader {leader.name}, " in cluster.status()
    assert f", wanted: {leader.name}\n" in cluster.status()
    cluster.syncctl("cluster", "move", "0", "--undo", *configured)
    assert "wanted" not in cluster.status()
    check(cluster, workers.finish())


def test_etcd_is_away_for_longer_than_a_lease(cluster):
    workers = Workers(cluster.address())
    workers.first_grants(time.monotonic())
    cluster.etcd.signal(signal.SIGSTOP)
    time.sleep(30)  # what is tested is that much time
    cluster.etcd.signal(signal.SIGCONT)
    workers.first_grants(time.monotonic())
    check(cluster, workers.finish())


def test_etcd_is_full(tmp_path):
    cluster = Cluster(tmp_path, Etcd(tmp_path, flags=("--quota-backend-bytes", str(8 << 20))))
    try:
        workers = Workers(cluster.address())
        workers.first_grants(time.monotonic())

        def ask(path, **body):
            request = urllib.request.Request(
                cluster.etcd.endpoints[0] + path, json.dumps(body).encode()
            )
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)

        junk = base64.b64encode(b"x" * 1_000_000).decode()
        with pytest.raises(urllib.error.HTTPError, match="429|400|503"):
            for _ in range(20):
                ask("/v3/kv/put", key="anNvbg==", value=junk)
        wait_until(lambda: "database space exceeded" in cluster.leader().log(), "the log says why")
        # As an operator does it.
        revision = ask("/v3/kv/deleterange", key="anNvbg==")["header"]["revision"]
        ask("/v3/kv/compaction", revision=revision, physical=True)
        ask("/v3/maintenance/defragment")
        alarm = ask("/v3/maintenance/alarm", action="GET")["alarms"][0]
        ask("/v3/maintenance/alarm", action="DEACTIVATE", **alarm)
        workers.first_grants(time.monotonic())
        check(cluster, workers.finish())
    finally:
        cluster.stop()


@contextlib.contextmanager
def on_a_small_disk(member):
    """It begins anew on one of 32 MB. Skips where root may mount nothing, as in a container."""
    member.kill()
    shutil.rmtree(member.store)
    member.store.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m", "disk", member.store])
    if mounted.returncode != 0:
        pytest.skip("no tmpfs can be mounted here")
    try:
        member.start()
        yield
    finally:
        member.kill()
        subprocess.run(["umount", "-l", member.store], check=True)


def dies_and_returns(cluster, workers):
    """The leader; until all members are there again."""
    workers.first_grants(time.monotonic())
    leader = cluster.leader()
    leader.kill()
    workers.first_grants(time.monotonic())
    leader.start()
    wait_until(lambda: cluster.status().count("\nmember ") == 3, "all are registered")


@pytest.mark.skipif(os.geteuid() != 0, reason="a small disk takes root")
def test_a_leader_whose_disk_is_full_hands_over(cluster):
    leader = cluster.leader()
    followers = [member for member in cluster.members if member is not leader]
    with on_a_small_disk(leader):
        workers = Workers(cluster.address())
        workers.first_grants(time.monotonic())
        configured = ("--config", str(leader.config), "--absent")
        cluster.syncctl("cluster", "move", "0", leader.name, *configured)
        wait_until(leader.leads, "it leads")
        workers.first_grants(time.monotonic())
        filler = leader.store / "filler"
        with open(filler, "wb") as filling, pytest.raises(OSError):
            while True:
                filling.write(bytes(1 << 20))
                filling.flush()
        wait_until(lambda: any(member.leads() for member in followers), "another one leads")
        workers.first_grants(time.monotonic())
        wait_until(lambda: "is full" in leader.page("/readyz")[1], "it waits for room, and says so")
        filler.unlink()
        new_leader = next(member for member in followers if member.leads())
        at = log_of(new_leader)["log_last"]
        wait_until(lambda: log_of(leader)["copied"] >= at, "it follows")
        check(cluster, workers.finish())
        assert all(member.is_up() for member in cluster.members), leader.log()


@small
@pytest.mark.skipif(os.geteuid() != 0, reason="a small disk takes root")
def test_a_follower_whose_disk_is_full_follows_again(cluster):
    """What it has then must not be taken for more than the cluster has: all would stop."""
    leader = cluster.leader()
    follower = next(member for member in cluster.members if member is not leader)
    with on_a_small_disk(follower):
        workers = Workers(cluster.address())
        workers.first_grants(time.monotonic())
        # More than a member reads at one time.
        wait_until(lambda: log_of(leader)["log_last"] > 700, "the log grows")
        wait_until(lambda: log_of(follower)["copied"] > 600, "it follows")
        filler = follower.store / "filler"
        with open(filler, "wb") as filling, pytest.raises(OSError):
            while True:
                filling.write(bytes(1 << 16))
                filling.flush()
        wait_until(lambda: follower.said("copy_behind"), "it notices")
        at = log_of(leader)["log_last"]
        wait_until(lambda: log_of(leader)["log_last"] > at + 100, "the others go on")
        assert all(member.is_up() for member in cluster.members), follower.log()
        filler.unlink()
        wait_until(lambda: log_of(follower)["copied"] > at + 100, "it follows again")
        check(cluster, workers.finish())
        assert all(member.is_up() for member in cluster.members), follower.log()


@pytest.mark.skipif(os.geteuid() != 0, reason="a disk that hangs takes root")
def test_a_leader_whose_disk_hangs_gives_way(cluster):
    leader = cluster.leader()
    followers = [member for member in cluster.members if member is not leader]
    leader.kill()
    shutil.rmtree(leader.store)
    image, disk = cluster.directory / "image", cluster.directory / "disk"
    disk.mkdir()
    with open(image, "wb") as made:
        made.truncate(256 << 20)
    for argv in (["mkfs.ext4", "-q", image], ["mount", "-o", "loop", image, disk]):
        if subprocess.run(argv, capture_output=True).returncode != 0:
            pytest.skip(f"no {argv[0]} here")
    (disk / "store").mkdir(mode=0o700)
    leader.store.symlink_to(disk / "store")
    frozen = False
    try:
        leader.start()
        workers = Workers(cluster.address())
        workers.first_grants(time.monotonic())
        cluster.syncctl("cluster", "move", "0", leader.name, "--absent", "--config", str(leader.config))
        wait_until(leader.leads, "it leads")
        workers.first_grants(time.monotonic())
        frozen = subprocess.run(["fsfreeze", "-f", disk], check=True).returncode == 0
        wait_until(lambda: any(member.leads() for member in followers), "another one leads")
        workers.first_grants(time.monotonic())
        check(cluster, workers.finish())
        assert "the disk of its copy takes nothing" in leader.log()
    finally:
        if frozen:
            subprocess.run(["fsfreeze", "-u", disk], check=True)
        leader.kill()
        subprocess.run(["umount", "-l", disk], check=True)


def test_a_member_with_an_empty_disk_leads(cluster):
    workers = Workers(cluster.address())
    workers.first_grants(time.monotonic())
    empty = next(member for member in cluster.members if member is not cluster.leader())
    empty.kill()
    shutil.rmtree(empty.store)
    empty.start()
    for member in cluster.members:
        if member is not empty:
            member.kill()
    workers.first_grants(time.monotonic())
    assert cluster.leader() is empty
    check(cluster, workers.finish())


def test_one_of_three_etcds_dies(tmp_path):
    cluster = Cluster(tmp_path, Etcd(tmp_path, 3 * [HERE]))
    try:
        workers = Workers(cluster.address())
        workers.first_grants(time.monotonic())
        cluster.etcd.servers[0].kill()
        workers.first_grants(time.monotonic() + LEASE_S)
        check(cluster, workers.finish())
    finally:
        cluster.stop()


def test_a_member_that_starts_while_etcd_has_no_majority_follows_later(tmp_path):
    cluster = Cluster(tmp_path, Etcd(tmp_path, 3 * [HERE]))
    try:
        late = next(member for member in cluster.members if member is not cluster.leader())
        late.kill()
        for server in cluster.etcd.servers[:2]:
            server.signal(signal.SIGSTOP)
        late.start()
        wait_until(lambda: "etcd" in late.page("/readyz")[1], "it waits")
        for server in cluster.etcd.servers[:2]:
            server.signal(signal.SIGCONT)
        wait_until(lambda: late.page("/readyz")[0] == 200, "it follows")
    finally:
        cluster.stop()


@small
def test_a_member_that_waits_for_etcd_sleeps(cluster):
    member = next(member for member in cluster.members if member is not cluster.leader())
    member.kill()
    cluster.etcd.stop()
    member.start()
    wait_until(lambda: member.log().rstrip().count("cluster_waits") > 0, "it waits")

    def ticks():
        return sum(map(int, pathlib.Path(f"/proc/{member.child.pid}/stat").read_text().split()[13:15]))

    time.sleep(1)
    before = ticks()
    time.sleep(3)
    share = (ticks() - before) / os.sysconf("SC_CLK_TCK") / 3
    assert share < 0.05, f"{share:.2f} of a core"
    cluster.etcd.servers[0].start()
    wait_until(lambda: member.page("/readyz")[0] == 200, "it follows")


def test_a_member_whose_port_is_taken_gives_way(cluster):
    workers = Workers(cluster.address())
    workers.first_grants(time.monotonic())
    leader = cluster.leader()
    wait_until(lambda: cluster.status().count("\nmember ") == 3, "all are registered")
    blocked = next(member for member in cluster.members if member is not leader)
    config = str(leader.config)
    with socket.create_server(("127.0.0.1", int(blocked.address.rsplit(":", 1)[1])), reuse_port=True):
        cluster.syncctl("cluster", "move", "0", blocked.name, "--config", config)
        assert blocked.child.wait(PATIENCE_S) == 4, blocked.log()
        assert "Address already in use" in blocked.log()
        workers.first_grants(time.monotonic())
    blocked.start()
    check(cluster, workers.finish())


@small
def test_a_member_that_nobody_knows_is_not_named_by_mistake(cluster):
    configured = ("--config", str(cluster.members[0].config))

    def refusal(*words):
        argv = [program("syncctl"), "cluster", *words, *configured]
        done = subprocess.run(argv, capture_output=True, text=True)
        assert done.returncode != 0, done.stdout
        return done.stderr

    wait_until(lambda: cluster.status().count("\nmember ") == 3, "all are registered")
    for words in (("drain", "n1"), ("move", "0", "n2")):
        said = f"no member '{words[-1]}' is there now; there are: m0, m1, m2"
        assert f"{said}; if it is to come, say --absent" in refusal(*words)
        assert said in cluster.syncctl("cluster", *words, "--absent", *configured)
    assert "the shard is a number, as in `cluster move 0 m1`" in refusal("move", "m1")


def test_status_names_leader_and_members(cluster):
    status = wait_until(
        lambda: (text := cluster.status()).count("\nmember ") == 3 and text, "all are registered"
    )
    assert re.search(r"^cluster lab, generation 1\netcd 3\.[\d.]+, [\d.]+ of 2048 MiB, file .* MiB\nleader m\d, term 1\.\d+\n", status), status


@small
def test_members_that_follow_show_pages_and_stop(cluster):
    leader = cluster.leader()
    follower, other = (member for member in cluster.members if member is not leader)
    wait_until(lambda: follower.page("/readyz") == (200, "ready\n"), "it could take over")
    assert follower.page("/healthz") == (200, "ok\n")
    argv = [program("syncctl"), "--addr", follower.address, "--timeout-ms", "100", "jobs"]
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.returncode == 3 and "that follows takes no connection" in done.stderr
    assert f'syncd_cluster_leads{{cluster_name="lab",shard="0",member="{follower.name}"}} 0\n' in (
        follower.page("/metrics")[1]
    )
    assert f'syncd_cluster_leads{{cluster_name="lab",shard="0",member="{leader.name}"}} 1\n' in (
        leader.page("/metrics")[1]
    )

    def shown():
        status = json.loads(follower.page("/status")[1])["cluster"]
        return status["leads"], status["leader"]

    wait_until(lambda: shown() == (False, leader.name), "it has seen who leads")

    Workers(cluster.address()).finish()
    cluster.etcd.signal(signal.SIGSTOP)
    wait_until(
        lambda: follower.page("/readyz")[1].startswith("etcd does not answer: "), "it says why it cannot"
    )
    assert follower.page("/healthz") == (200, "ok\n")
    cluster.etcd.signal(signal.SIGCONT)
    wait_until(lambda: other.page("/readyz")[0] == 200, "etcd is back")

    # A signal for each of them, whatever it is in.
    follower.signal(signal.SIGHUP)
    follower.signal(signal.SIGTERM)
    assert follower.child.wait(PATIENCE_S) == 0, follower.log()
    assert "stopped" in follower.log()


@small
def test_what_a_member_refuses(cluster, tmp_path):
    def refusal(name, more="", etcd=cluster.etcd):
        directory = tmp_path / f"other-{name}-{len(more)}"
        directory.mkdir()
        member = Member(directory, name, etcd, f"127.0.0.1:{free_ports(1)[0]}", more=more)
        try:
            wait_until(lambda: not member.is_up(), "it ends")
            assert member.child.returncode == 3, member.log()
            return member.log()
        finally:
            member.kill()

    wait_until(lambda: cluster.status().count("\nmember ") == 3, "all are registered")
    assert "a member 'm1' is alive, at tcp:127.0.0.1:" in refusal("m1")
    (tmp_path / "taken").mkdir()
    taken = Member(tmp_path / "taken", "m9", cluster.etcd, cluster.leader().address)
    try:
        wait_until(lambda: not taken.is_up(), "it ends")
        assert taken.child.returncode == 4 and "listen.tcp: " in taken.log()
    finally:
        taken.kill()
    (tmp_path / "other").mkdir()
    other = Etcd(tmp_path / "other")
    try:
        text = refusal("m9", etcd=other)
        assert "etcd knows no cluster 'lab': set it up with `syncctl cluster init`" in text
    finally:
        other.stop()


def test_a_copy_opens_only_as_one(cluster):
    Workers(cluster.address()).finish()
    member = cluster.leader()
    member.kill()
    argv = [program("syncd"), "--store", str(member.store), "--tcp", "off", "--unix",
            str(member.directory / "s")]
    alone = Process(argv, member.directory / "alone.log")
    wait_until(lambda: not alone.is_up(), "it ends")
    assert alone.child.returncode == 3
    assert "is a copy of a cluster's history" in alone.log()
    member.start()


def seed(member, store):
    """What `syncctl cluster init --from` says; the member's process must not run."""
    argv = ["cluster", "init", "--config", str(member.config), "--from", str(store)]
    done = subprocess.run([program("syncctl"), *argv], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def log_of(member):
    return json.loads(member.page("/status")[1])["cluster"]


def await_copy(leader):
    """Until its copy has what is acknowledged up to now."""
    last = log_of(leader)["log_last"]
    wait_until(lambda: log_of(leader)["copied"] >= last, "the copy has it")


def start_again(etcd):
    ready = etcd.log().count("ready to serve client requests")
    etcd.start()
    wait_until(lambda: etcd.log().count("ready to serve client requests") > ready, "etcd is back")


def begin_with_its_copy(cluster, leader, workers, safe):
    """The workers go on, and nothing is lost that was acknowledged before `safe`, when that copy had it all."""
    assert "as generation 2" in seed(leader, leader.store)
    for member in cluster.members:
        member.start()
    workers.first_grants(time.monotonic())
    seen = workers.finish()
    seen.pushes = [push for push in seen.pushes if push.acknowledged < safe]
    found = faults(seen, cluster.pushes("job"))
    assert seen.pushes and not [fault for fault in found if not fault.startswith("invented")], found[:10]


@small
def test_etcd_loses_its_data_and_the_cluster_begins_with_a_copy(cluster):
    workers = Workers(cluster.address())
    leader = cluster.leader()
    workers.first_grants(time.monotonic())
    wait_until(workers.seen.acknowledged, "a push is acknowledged")

    safe = time.monotonic()
    await_copy(leader)
    for member in cluster.members:
        member.signal(signal.SIGSTOP)
    cluster.etcd.stop()
    for member in cluster.members:
        member.kill()
    server = cluster.etcd.servers[0]
    shutil.rmtree(server.argv[server.argv.index("--data-dir") + 1])
    start_again(server)
    # Members find no cluster then, and change nothing.
    leader.start()
    wait_until(lambda: not leader.is_up(), "it ends")
    assert "etcd knows no cluster 'lab', and " in leader.log()
    argv = ["cluster", "init", "--config", str(leader.config)]
    done = subprocess.run([program("syncctl"), *argv], capture_output=True, text=True)
    assert done.returncode == 1 and f"`syncctl cluster init --from {leader.store}`" in done.stderr
    begin_with_its_copy(cluster, leader, workers, safe)
    wait_until(
        lambda: all(member.page("/readyz")[0] == 200 for member in cluster.members),
        "all copies are there",
    )


@small
def test_etcd_is_restored_from_a_backup_and_one_copy_is_no_newer(cluster):
    """That member must not lead on without what was acknowledged since."""
    workers = Workers(cluster.address())
    workers.first_grants(time.monotonic())
    leader = cluster.leader()
    late = next(member for member in cluster.members if member is not leader)
    late.signal(signal.SIGTERM)
    assert late.child.wait(PATIENCE_S) == 0
    server, backup = cluster.etcd.servers[0], str(cluster.directory / "backup")

    def etcdctl(*arguments):
        subprocess.run(
            ["etcdctl", *arguments], check=True, capture_output=True, env={**os.environ, "ETCDCTL_API": "3"}
        )

    etcdctl("--endpoints", cluster.etcd.endpoints[0], "snapshot", "save", backup)
    workers.first_grants(time.monotonic())
    safe = time.monotonic()
    await_copy(leader)
    server.kill()
    options = dict(zip(server.argv, server.argv[1:]))
    shutil.rmtree(options["--data-dir"])
    same = ("--name", "--initial-cluster", "--initial-advertise-peer-urls", "--data-dir")
    etcdctl("snapshot", "restore", backup, *(text for name in same for text in (name, options[name])))
    start_again(server)
    late.start()
    for member in cluster.members:
        wait_until(lambda one=member: not one.is_up(), f"{member.name} ends")
        assert member.child.returncode == 3 and "etcd was set back" in member.log(), member.log()[-2000:]
    begin_with_its_copy(cluster, leader, workers, safe)


def test_the_history_outlasts_a_rolling_restart_under_load(cluster):
    """The log stays for the copies of members that are away."""
    workers = Workers(cluster.address())
    workers.first_grants(time.monotonic())
    seen = workers.finish()
    argv = [program("syncbench"), "--addr", cluster.address(), "--job", "load", "--policy", "asp"]
    argv += ["--workers", "256", "--connections", "16", "--iteration-time", "0", "--seconds", "600"]
    load = Process([*argv, "--timeout-ms", "60000"], cluster.directory / "load")
    leader = cluster.leader()
    for member in sorted(cluster.members, key=lambda one: one is leader):
        member.signal(signal.SIGTERM)
        assert member.child.wait(PATIENCE_S) == 0
        time.sleep(8)  # under load
        member.start()
        wait_until(lambda one=member: one.page("/readyz")[0] == 200, "it is back")
    load.kill()
    check(cluster, seen)
    for member in cluster.members:
        assert "copy_set_aside" not in member.log(), member.log()[-2000:]


def test_a_single_daemons_jobs_go_on_in_a_cluster(tmp_path):
    address, more = (f"127.0.0.1:{port}" for port in free_ports(2))
    argv = [program("syncd"), "--store", str(tmp_path / "alone"), "--tcp", address, "--unix", "off"]
    argv += ["--admin", "off"]
    alone = Process(argv, tmp_path / "alone.log")
    workers = Workers(f"{address},{more}")
    workers.first_grants(time.monotonic())
    alone.signal(signal.SIGTERM)
    assert alone.child.wait(PATIENCE_S) == 0
    etcd = Etcd(tmp_path)
    members = []
    try:
        for name, at in (("m0", address), ("m1", more)):
            (tmp_path / name).mkdir()
            members.append(Member(tmp_path / name, name, etcd, at))
            members[-1].kill()
        assert "as generation 1" in seed(members[0], tmp_path / "alone")
        (tmp_path / "alone").rename(members[0].store)
        for member in members:
            member.start()
        workers.first_grants(time.monotonic())
        seen = workers.finish()
        leader = wait_until(lambda: next((m for m in members if m.leads()), None), "one leads")
        argv = ["--addr", leader.address, "history", "job", "--kind", "push", "--json"]
        done = subprocess.run([program("syncctl"), *argv], capture_output=True, text=True)
        records = json.loads(done.stdout)
        first = min(record["iteration"] for record in records)
        seen.pushes = [push for push in seen.pushes if push.iteration > first]
        found = faults(seen, [record for record in records if record["iteration"] > first])
        assert not found, found[:10]
    finally:
        for member in members:
            member.kill()
        etcd.stop()


@small
def test_a_member_that_could_not_serve_does_not_follow(cluster):
    follower = next(member for member in cluster.members if member is not cluster.leader())
    follower.kill()
    usual = follower.config.read_text()
    follower.config.write_text(usual.replace('unix = "off"', 'unix = "/proc/none/sock"'))
    follower.start()
    assert follower.child.wait(PATIENCE_S) == 4, follower.log()
    assert "/proc/none/sock" in follower.log()


@small
def test_a_job_that_no_member_can_read_stops_no_other(tmp_path):
    subprocess.run([program("later_store"), str(tmp_path / "later")], check=True)
    etcd = Etcd(tmp_path)
    members = []
    try:
        for name, port, admin in zip(("m0", "m1"), free_ports(2), free_ports(2)):
            (tmp_path / name).mkdir()
            at = f"127.0.0.1:{port}"
            members.append(Member(tmp_path / name, name, etcd, at, f"127.0.0.1:{admin}"))
            members[-1].kill()
        seed(members[0], tmp_path / "later")
        for member in members:
            member.start()
        leader = wait_until(lambda: next((m for m in members if m.leads()), None), "one leads")
        assert leader.said("job_unreadable")
        # Each has left leading to the other once.
        for member in members:
            wait_until(lambda m=member: "it cannot read a job" in m.log(), "it says so")
        with syncd.connect(leader.address) as client:
            with client.join("known") as worker:
                worker.begin()
                worker.push()
            with pytest.raises(syncd.Error, match="cannot read it.*of_a_later_version") as refused:
                client.join("later")
            assert refused.value.name == "SYNCD_E_STORE"

        def ask(*words):
            argv = [program("syncctl"), "--addr", leader.address, *words, "--json"]
            return json.loads(subprocess.run(argv, capture_output=True, check=True).stdout)

        listed = ask("jobs")
        states = {job["name"]: (job["state"], "of_a_later_version" in job["note"]) for job in listed}
        assert states == {"later": ("unreadable", True), "known": ("stopped", False)}
        assert [record["kind"] for record in ask("history", "later")] == ["job_created"]
        assert "\nsyncd_jobs_unreadable 1\n" in leader.page("/metrics")[1]
    finally:
        for member in members:
            member.kill()
        etcd.stop()
