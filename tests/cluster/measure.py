"""Figures of a cluster on this machine: three etcd servers, three machines. Nothing is asserted.

usage: tests/cluster/run --measure [idle] [pushes] [killed] [handed] [spread]     all by default

idle     memory and processor time of members without work
pushes   pushes a second of one job, and of a job in each of SYNCD_MEASURE_SHARDS shards (default 4), under asp
         with 256 workers in all; over bare fenced appends a second of the same size by as many writers, in the
         same etcd, times the mean number of pushes in an entry
killed   SYNCD_FAILOVER_RUNS leaders (default 20) are killed, with 100 workers under asp and a lease of
         SYNCD_FAILOVER_LEASE_S: seconds to the next grant of all workers
handed   the shard is moved as often, with 4 workers under asp and 4 under bsp: how long one waited at most
spread   four jobs of 1,000 workers each under bsp, whose iterations take a second, on one machine; two more
         come: seconds until leaders are spread, and how much longer than usual a worker waited meanwhile
"""

import base64
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

from support import HERE, Cluster, Etcd, Workers, program, shard_of, wait_until

IDLE_S = 20
ROUND_S = 8
WORKERS = 256
SPREAD_S = 100
SPREAD_SHARDS = 4


@contextlib.contextmanager
def running(shards=1, machines=None):
    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(directory)
        cluster = Cluster(path, Etcd(path, 3 * [HERE]), shards=shards, machines=machines)
        try:
            yield cluster
        finally:
            cluster.stop()


def used(member):
    """(seconds of processor time, resident MB)"""
    with open(f"/proc/{member.child.pid}/stat", encoding="utf8") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    with open(f"/proc/{member.child.pid}/statm", encoding="utf8") as statm:
        pages = int(statm.read().split()[1])
    ticks = int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK"), pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def idle():
    with running() as cluster:
        leader = cluster.leader()
        wait_until(lambda: cluster.status().count("\nmember ") == 3, "all are registered")
        before = {member.name: used(member)[0] for member in cluster.members}
        time.sleep(IDLE_S)
        for member in cluster.members:
            seconds, megabytes = used(member)
            share = (seconds - before[member.name]) / IDLE_S
            what = "leads" if member is leader else "follows"
            print(f"idle, {what}: {100 * share:.1f} % of a core, {megabytes:.0f} MB")


def log_entries(cluster):
    status = json.loads(cluster.status("--json"))
    return sum(shard["last"] for shard in status.get("shards", [status]))


def entry_bytes(cluster):
    """The mean size of the latest entries of all logs."""
    prefix = b"/syncd/lab/v1/shards/"
    ask = {"key": prefix, "range_end": prefix[:-1] + b"0"}
    ask = {name: base64.b64encode(value).decode() for name, value in ask.items()}
    ask |= {"limit": "500", "sort_order": "DESCEND", "sort_target": "MOD"}
    request = urllib.request.Request(
        f"{cluster.etcd.endpoints[0]}/v3/kv/range", json.dumps(ask).encode()
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        found = json.load(answer)["kvs"]
    sizes = [
        len(base64.b64decode(item["value"]))
        for item in found
        if b"/log/" in base64.b64decode(item["key"])
    ]
    return int(statistics.mean(sizes))


def bench(cluster, job, workers, connections, policy="asp", seconds=ROUND_S, iteration="0"):
    argv = [program("syncbench"), "--addr", cluster.address(), "--job", job, "--policy", policy]
    argv += ["--workers", str(workers), "--connections", str(connections)]
    argv += ["--iteration-time", iteration, "--seconds", str(seconds), "--json"]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)


def bare_appends(cluster, size, shards):
    """A second."""
    argv = [program("../bench/bench_appends"), "--etcd", *cluster.etcd.endpoints]
    argv += ["--bytes", str(size), "--shards", str(shards), "--seconds", str(ROUND_S)]
    return float(subprocess.run(argv, capture_output=True, text=True, check=True).stdout)


def job_of_each(shards):
    return {shard_of(f"job-{i}", shards): f"job-{i}" for i in range(1000)}


def pushes(shards):
    jobs = job_of_each(shards)
    with running(shards) as cluster:
        before = log_entries(cluster)
        load = [
            bench(cluster, jobs[shard], WORKERS // shards, max(1, 16 // shards))
            for shard in range(shards)
        ]
        made = sum(json.loads(one.communicate()[0])["pushes"] for one in load)
        batch = made / (log_entries(cluster) - before)
        size = entry_bytes(cluster)
        appends = bare_appends(cluster, size, shards)
    rate = made / ROUND_S
    print(
        f"{shards} shards: {rate:.0f} pushes/s, {batch:.1f} in an entry of {size} bytes; bare appends of as "
        f"many bytes: {appends:.0f}/s; pushes over what those allow: {rate / (appends * batch):.2f}"
    )


def killed():
    runs = int(os.environ.get("SYNCD_FAILOVER_RUNS", "20"))
    with running() as cluster:
        workers = Workers(cluster.address(), count=100)
        took = []
        for _ in range(runs):
            leader = cluster.leader()
            workers.first_grants(time.monotonic())
            since = time.monotonic()
            leader.kill()
            took.append(workers.first_grants(since))
            leader.start()
        workers.finish()
    print(
        f"SIGKILL to the next grant of all 100 workers: median {statistics.median(took):.2f} s, "
        f"most {max(took):.2f} s of {runs}"
    )


def handed():
    runs = int(os.environ.get("SYNCD_FAILOVER_RUNS", "20"))
    took = []
    with running() as cluster:
        workers = [Workers(cluster.address()), Workers(cluster.address(), "barriers", "bsp")]
        wait_until(lambda: cluster.status().count("\nmember ") == 3, "all are registered")
        names = [member.name for member in cluster.members]
        for _ in range(runs):
            for each in workers:
                each.first_grants(time.monotonic() + 1)
            leader = cluster.leader()
            other = cluster.members[(names.index(leader.name) + 1) % len(names)]
            wait_until(lambda: other.page("/readyz")[0] == 200, "it could take over")
            since = time.monotonic()
            cluster.syncctl("cluster", "move", "0", other.name, "--config", str(leader.config))
            wait_until(other.leads, "it leads")
            for each in workers:
                each.first_grants(time.monotonic())
            took.append(max(each.longest_pause(since) for each in workers))
        for each in workers:
            each.finish()
    took.sort()
    print(
        f"moved, all granted again: median {statistics.median(took):.2f} s, "
        f"p99 {took[int(0.99 * (len(took) - 1))]:.2f} s, most {took[-1]:.2f} s of {runs}"
    )


def spread():
    jobs = job_of_each(SPREAD_SHARDS)
    with running(SPREAD_SHARDS, machines=1) as cluster:
        load = [
            bench(cluster, jobs[shard], 1000, 10, "bsp", SPREAD_S, "constant:1000")
            for shard in range(SPREAD_SHARDS)
        ]
        time.sleep(10)  # all have joined, and train
        since = time.monotonic()
        cluster.start(1)
        cluster.start(2)

        def is_spread():
            status = json.loads(cluster.status("--json"))
            leaders = [shard["leader"] for shard in status["shards"]]
            return sorted(leaders.count(f"m{i}") for i in range(3)) == [1, 1, 2]

        wait_until(is_spread, "all have some")
        print(f"{SPREAD_SHARDS} shards are spread over 3 machines after {time.monotonic() - since:.0f} s")
        for shard, one in enumerate(load):
            found = json.loads(one.communicate()[0])
            waits = [
                f"{what}: usual {found[what]['p50_us'] / 1e6:.2f} s, most {found[what]['max_us'] / 1e6:.2f} s"
                for what in ("push", "barrier")
            ]
            print(f"shard {shard}: {'; '.join(waits)}")


chosen = sys.argv[1:] or ["idle", "pushes", "killed", "handed", "spread"]
if "idle" in chosen:
    idle()
if "pushes" in chosen:
    pushes(1)
    pushes(int(os.environ.get("SYNCD_MEASURE_SHARDS", "4")))
if "killed" in chosen:
    killed()
if "handed" in chosen:
    handed()
if "spread" in chosen:
    spread()
