"""A transaction of a leader that is gone reaches etcd late: its fence keeps it out. The canary is the
same transaction without its compares: etcd takes it, and nobody may go on from what it leaves."""

import concurrent.futures
import os
import shutil
import threading
import time

import pytest
from support import HERE, Cluster, Etcd, Workers, free_ports, wait_until
from test_failover import check

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")  # children only call exec
grpc = pytest.importorskip("grpc", reason="python3-grpcio is not installed")

TRANSACTION = "/etcdserverpb.KV/Txn"


def fields(message):
    """Of a protobuf message, all of whose fields have a length: (number, bytes with the tag, without)."""
    at = 0

    def number():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        begin = at
        tag = number()
        assert tag & 7 == 2, f"tag {tag}"
        size = number()
        at += size
        yield tag >> 3, message[begin:at], message[at - size : at]


def without_compares(transaction):
    return b"".join(whole for number, whole, _ in fields(transaction) if number != 1)


def is_append(transaction):
    """Whether it puts an entry of a shard's log."""
    return any(number == 2 and b"/log/" in inside for number, _, inside in fields(transaction))


class EtcdProxy(grpc.GenericRpcHandler):
    """Before one etcd. It passes everything on, but appends while it holds them."""

    def __init__(self, etcd):
        (port,) = free_ports(1)
        self.endpoint = f"http://{HERE.host}:{port}"
        self.channel = grpc.insecure_channel(etcd.removeprefix("http://"))
        self.holds = threading.Event()
        self.held = []
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(100), [self])
        assert self.server.add_insecure_port(f"{HERE.host}:{port}") == port
        self.server.start()

    def service(self, call):
        # On the wire each kind of call is a stream.
        return grpc.stream_stream_rpc_method_handler(
            lambda requests, context: self._pass_on(call, requests, context)
        )

    def _pass_on(self, call, requests, context):
        if call.method == TRANSACTION:
            (transaction,) = requests
            if self.holds.is_set() and is_append(transaction):
                self.held.append(transaction)
                context.abort(grpc.StatusCode.UNAVAILABLE, "held")
            requests = iter([transaction])
        answers = self.channel.stream_stream(call.method)(requests)
        context.add_callback(answers.cancel)
        try:
            yield from answers
        except grpc.RpcError as error:
            if context.is_active():
                context.abort(error.code(), error.details())

    def send(self, transaction):
        """Whether its compares held."""
        answer = self.channel.unary_unary(TRANSACTION)(transaction, timeout=60)
        _, header, _ = next(fields(answer))
        return answer[len(header) :].startswith(b"\x10\x01")  # field 2; false is left out

    def stop(self):
        self.server.stop(None).wait()
        self.channel.close()


@pytest.fixture
def proxy(tmp_path):
    etcd = Etcd(tmp_path)
    made = EtcdProxy(etcd.endpoints[0])
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
    proxy.holds.set()
    wait_until(lambda: proxy.held, "it appends")
    leader.kill()
    proxy.holds.clear()
    workers.first_grants(time.monotonic())
    seen = workers.finish()
    late = proxy.held[0]
    assert proxy.send(late if fenced else without_compares(late)) != fenced

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
