"""A transaction of a leader that is gone reaches etcd late: its fence keeps it out. The canary is the
same transaction without its compares: etcd takes it, and nobody may go on from what it leaves."""

import importlib.util
import shutil
import subprocess
import sys
import time

import pytest
from support import HERE, ROOT, Cluster, Etcd, Workers, free_ports, wait_until
from test_failover import check

if importlib.util.find_spec("grpc") is None:
    pytest.skip("python3-grpcio is not installed", allow_module_level=True)


class Proxy:
    """See etcd_proxy.py."""

    def __init__(self, etcd):
        (port,) = free_ports(1)
        self.endpoint = f"http://{HERE.host}:{port}"
        argv = [sys.executable, str(ROOT / "tests/cluster/etcd_proxy.py"), etcd.removeprefix("http://"), f"{HERE.host}:{port}"]
        self.child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.ask("pass")

    def ask(self, command):
        print(command, file=self.child.stdin, flush=True)
        answer = self.child.stdout.readline().strip()
        assert answer, f"the proxy has ended with {self.child.wait()}"
        return answer

    def stop(self):
        self.child.kill()
        self.child.wait()


@pytest.fixture
def proxy(tmp_path):
    etcd = Etcd(tmp_path)
    made = Proxy(etcd.endpoints[0])
    etcd.endpoints = [made.endpoint]
    made.etcd = etcd
    yield made
    made.stop()
    etcd.stop()


@pytest.mark.small
@pytest.mark.parametrize("fenced", [True, False])
def test_a_late_append_of_a_leader_that_is_gone(proxy, tmp_path, fenced):
    cluster = Cluster(tmp_path, proxy.etcd)
    workers = Workers(cluster.address())
    workers.first_grants(time.monotonic())
    leader = cluster.leader()
    proxy.ask("hold")
    wait_until(lambda: proxy.ask("held") != "0", "it appends")
    leader.kill()
    proxy.ask("pass")
    workers.first_grants(time.monotonic())
    seen = workers.finish()
    assert proxy.ask("late" if fenced else "bare") == str(not fenced)

    # From what is in etcd alone.
    for member in cluster.members:
        member.kill()
        shutil.rmtree(member.store)
        member.start()
    if fenced:
        check(cluster, seen)
    else:
        for member in cluster.members:
            wait_until(lambda m=member: not m.is_up(), "it refuses the log")
            assert "does not follow the one before it" in member.log(), member.log()
    cluster.stop()
