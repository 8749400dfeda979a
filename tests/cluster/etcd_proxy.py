"""A proxy before one etcd, which can hold back what leaders append: etcd_proxy.py ETCD ADDRESS, as HOST:PORT each.

Reads commands, a line each, and answers each with a line:
    hold, pass   whether appends are held back from now on
    held         how many have been
    late, bare   sends the first of these after all, whole or without its compares: whether etcd has taken it
A process of its own, because gRPC does not get on with fork().
"""

import concurrent.futures
import sys
import threading

import grpc

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

    def __init__(self, etcd, address):
        self.channel = grpc.insecure_channel(etcd)
        self.holds = threading.Event()
        self.held = []
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(100), [self])
        assert self.server.add_insecure_port(address) == int(address.rpartition(":")[2])
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


def main():
    proxy = EtcdProxy(*sys.argv[1:])
    for line in sys.stdin:
        command = line.strip()
        if command in ("hold", "pass"):
            (proxy.holds.set if command == "hold" else proxy.holds.clear)()
            print("done", flush=True)
        elif command == "held":
            print(len(proxy.held), flush=True)
        else:
            late = proxy.held[0]
            print(proxy.send(late if command == "late" else without_compares(late)), flush=True)


main()
