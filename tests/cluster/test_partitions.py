"""Networks that break: members and etcd servers in namespaces of their own. It takes root.

SYNCD_DISTURBED_RUNS=N  clusters, of each of which 20 leaders are disturbed (default 1)
"""

import collections
import contextlib
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import time
import urllib.request

import pytest
from order import Push, answered_between
from support import LEASE_S, PATIENCE_S, Cluster, Etcd, Place, Workers, syncd, wait_until
from test_failover import check


def ip(*words):
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout


class Net:
    """Two networks, each a bridge: "etcd" has members and etcd servers, "work" has members. The test
    and its workers are on both. Isolated ports move to an island, a bridge of their own: packets
    vanish, as in a switch, and no program is told."""

    NETWORKS = {"etcd": 18, "work": 19}  # 198.18.0.0/15 is nobody's: for tests of networks

    def __init__(self):
        self.tag = f"s{os.getpid()}"  # names of links have 15 characters at most
        self.names = []
        self.isolated = []

    def make(self):
        for network, number in self.NETWORKS.items():
            for bridge in (self._bridge(network), self._island(network)):
                ip("link", "add", bridge, "type", "bridge")
                ip("link", "set", bridge, "up")
            ip("address", "add", f"{self._host(number, 1)}/24", "dev", self._bridge(network))

    def _bridge(self, network):
        return f"{self.tag}{network[0]}"

    def _island(self, network):
        return f"{self.tag}{network[0]}i"

    def _port(self, network, name):
        return f"{self.tag}{network[0]}{name}"

    @staticmethod
    def _host(number, last):
        return f"198.{number}.{os.getpid() % 256}.{last}"

    def add(self, name, network, *more):
        """A namespace on these networks; the place has its address on the last one."""
        self.names.append(name)
        space = f"{self.tag}{name}"
        ip("netns", "add", space)
        ip("-n", space, "link", "set", "lo", "up")
        for network in (network, *more):
            port = self._port(network, name)
            host = self._host(self.NETWORKS[network], 10 + len(self.names))
            ip("link", "add", port, "type", "veth", "peer", "name", network, "netns", space)
            ip("link", "set", port, "master", self._bridge(network), "up")
            ip("-n", space, "address", "add", f"{host}/24", "dev", network)
            ip("-n", space, "link", "set", network, "up")
        return Place(host, ("ip", "netns", "exec", space))

    def isolate(self, network, *names):
        """They reach each other on it, but nobody else does. Returns when that was so."""
        for name in names:
            ip("link", "set", self._port(network, name), "master", self._island(network))
            self.isolated.append((network, name))
        return time.monotonic()

    def heal(self):
        for network, name in self.isolated:
            ip("link", "set", self._port(network, name), "master", self._bridge(network))
        self.isolated.clear()
        return time.monotonic()

    def remove(self):
        """Whatever of it there is."""
        for name in self.names:
            with contextlib.suppress(subprocess.CalledProcessError, ProcessLookupError):
                for pid in ip("netns", "pids", f"{self.tag}{name}").split():
                    os.kill(int(pid), signal.SIGKILL)
        links = [self._port(network, name) for network in self.NETWORKS for name in self.names]
        links += [name(network) for network in self.NETWORKS for name in (self._bridge, self._island)]
        for words in [("link", "delete", link) for link in links] + [
            ("netns", "delete", f"{self.tag}{name}") for name in self.names
        ]:
            with contextlib.suppress(subprocess.CalledProcessError):
                ip(*words)


@pytest.fixture
def net():
    if os.geteuid() != 0 or not shutil.which("ip"):
        pytest.skip("namespaces take root and the program ip")
    made = Net()
    terminate = signal.signal(signal.SIGTERM, signal.default_int_handler)  # of a test that hangs
    try:
        try:
            made.make()
            made.add("probe", "etcd", "work")
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no namespaces here: {' '.join(error.cmd)}: {error.stderr.strip()}")
        yield made
    finally:
        made.remove()
        signal.signal(signal.SIGTERM, terminate)


@pytest.fixture
def cluster(net, tmp_path, request):
    etcds = [net.add(f"e{i}", "etcd") for i in range(getattr(request, "param", 1))]
    made = Cluster(
        tmp_path, Etcd(tmp_path, etcds), [net.add(f"m{i}", "etcd", "work") for i in range(3)]
    )
    yield made
    made.stop()


def see_another_lead(cluster, net, *isolated):
    """Isolates the leader from etcd, perhaps with some of etcd's servers. Workers still reach it."""
    workers = [Workers(cluster.address()), Workers(cluster.address(), "barriers", "bsp")]
    for each in workers:
        each.first_grants(time.monotonic())
    with syncd.connect(cluster.address(), reconnect_timeout=PATIENCE_S) as client:
        idle = client.join("idle", "asp", rank=0, world_size=1)
        idle.begin()
        idle.push()
        old = cluster.leader()
        cut = net.isolate("etcd", old.name, *isolated)
        # What is tested is after its lease, of which only the end keeps it from granting this.
        time.sleep(max(0, cut + LEASE_S - time.monotonic()))
        idle.begin()
        granted = time.monotonic()
    others = [member for member in cluster.members if member is not old]
    new = wait_until(lambda: next((m for m in others if m.leads()), None), "another one leads")
    led = new.said("leads", cut) or new.said("leads")  # on a busy machine, a moment before the cut
    took = max(each.first_grants(led) for each in workers)
    print(f"cut off: another one leads after {led - cut:.2f} s, all are granted {took:.2f} s later")
    assert granted > led and old.said("deposed"), old.log()

    net.heal()
    wait_until(lambda: old.page("/readyz")[0] == 200, "it follows")
    for each in workers:
        each.first_grants(time.monotonic())
        seen = each.finish()
        check(cluster, seen)
        # A grant may still leave after the cut, for a push before it; a push waits for etcd.
        late = answered_between(seen, cut, led)
        assert not [one for one in late if isinstance(one, Push)], late


def test_a_leader_cut_off_from_etcd(cluster, net):
    see_another_lead(cluster, net)


def etcds_leader(etcd):
    """Of three servers."""
    for server, endpoint in zip(etcd.servers, etcd.endpoints):
        ask = urllib.request.Request(f"{endpoint}/v3/maintenance/status", b"{}")
        with urllib.request.urlopen(ask, timeout=10) as answer:
            status = json.load(answer)
        if status["leader"] == status["header"]["member_id"]:
            return server
    return None


@pytest.mark.parametrize("cluster", [3], indirect=True)
@pytest.mark.parametrize("leads", [True, False])
def test_a_leader_cut_off_with_one_of_three_etcds(cluster, net, leads):
    server = wait_until(lambda: etcds_leader(cluster.etcd), "etcd has a leader")
    names = [f"e{i}" for i, one in enumerate(cluster.etcd.servers) if (one is server) == leads]
    see_another_lead(cluster, net, names[0])


def test_a_leader_cut_off_from_its_workers_keeps_leading(cluster, net):
    leader = cluster.leader()
    workers = [Workers(cluster.address()), Workers(cluster.address(), "barriers", "bsp")]
    for each in workers:
        each.first_grants(time.monotonic())
    term = cluster.status().splitlines()[2]
    assert term.startswith(f"leader {leader.name}, term "), term
    cut = net.isolate("work", leader.name)
    time.sleep(2 * LEASE_S)  # what is tested is that much time
    assert cluster.status().splitlines()[2] == term
    healed = net.heal()
    took = [each.first_grants(healed) for each in workers]
    print(f"heal to the next grant of all: {max(took):.2f} s")
    assert cluster.leader() is leader and cluster.status().splitlines()[2] == term
    for each in workers:
        seen = each.finish()
        check(cluster, seen)
        assert not answered_between(seen, cut, healed)


DISTURBANCES = ["killed", "stopped", "ended", "without etcd", "gone"]


def disturb(cluster, net, leader, what):
    """Until other members have had the time to take over. Returns what makes it good again."""
    if what == "killed":
        leader.kill()
        return leader.start
    if what == "ended":
        leader.signal(signal.SIGTERM)
        return lambda: (leader.child.wait(), leader.start())
    if what == "stopped":
        leader.signal(signal.SIGSTOP)
        return lambda: leader.signal(signal.SIGCONT)
    net.isolate("etcd", leader.name)
    if what == "gone":  # as if its machine were off
        net.isolate("work", leader.name)
    return net.heal


@pytest.mark.parametrize("seed", range(int(os.environ.get("SYNCD_DISTURBED_RUNS", "1"))))
def test_whatever_happens_to_leaders(cluster, net, seed):
    draws = random.Random(seed)
    workers = [
        Workers(cluster.address(), rest=0.02),
        Workers(cluster.address(), "barriers", "bsp", rest=0.02),
    ]
    took = collections.defaultdict(list)
    for _ in range(20):
        for each in workers:
            each.first_grants(time.monotonic())
        leader = cluster.leader()
        what = draws.choice(DISTURBANCES)
        since = time.monotonic()
        undo = disturb(cluster, net, leader, what)
        wait_until(lambda: any(m.leads() for m in cluster.members if m is not leader), "one leads")
        for each in workers:
            each.first_grants(time.monotonic())
        took[what].append(max(each.longest_pause(since) for each in workers))
        undo()
        wait_until(lambda: leader.page("/readyz")[0] == 200, f"who was {what} follows")
    for what, seconds in sorted(took.items()):
        print(f"{what}: workers waited {statistics.median(seconds):.2f} s, at most "
              f"{max(seconds):.2f} s of {len(seconds)}")
    for each in workers:
        check(cluster, each.finish())
