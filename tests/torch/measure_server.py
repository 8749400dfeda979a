#!/usr/bin/env python3
"""Measures the parameter server of syncd.torch on this machine.

    SYNCD_LIBRARY=... SYNCD_TEST_BIN_DIR=... PYTHONPATH=bindings/python/src \\
        tests/torch/measure_server.py [--megabytes 100] [--seconds 10] [--workers 4]

1. A pull and a push by shared memory, as a share of copying as many bytes by memcpy.
2. The same by TCP, as a share of a bare socket's sendall and recv_into of as many bytes.
   Both with the server's step (SGD) and without it: transfer and the check for finite values only.
3. Iterations/s of workers under asp, as a share of as many processes that train without any exchange.

Baselines are measured in turn with what they are compared to; each figure is the median of the rounds.
"""

import argparse
import multiprocessing
import os
import pathlib
import secrets
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import torch

ROUNDS = 7


def timed(call):
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def echo(listener, size):
    """The other end of the bare socket: takes `size` bytes, then sends as many, again and again."""
    peer, _ = listener.accept()
    data = bytearray(size)
    while True:
        view = memoryview(data)
        while view:
            count = peer.recv_into(view, 0, socket.MSG_WAITALL)
            if count == 0:
                return
            view = view[count:]
        peer.sendall(data)


def bandwidth(megabytes):
    from syncd._private import write_private
    from syncd.torch import _link, _parameters, server

    model = torch.nn.ParameterList(torch.randn(1 << 18) for _ in range(megabytes))
    parameters = list(model.parameters())
    gradients = [torch.randn_like(one) for one in parameters]
    optimizer = torch.optim.SGD(parameters, lr=1e-6)
    begun = _parameters.describe_optimizer(model, optimizer)
    options = _parameters.describe_options(optimizer)
    size = sum(one.numel() * 4 for one in parameters)
    with tempfile.TemporaryDirectory() as directory, socket.socket() as probe:
        secret = pathlib.Path(directory, "secret")
        write_private(secret, secrets.token_hex(32))
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        argv = ["--job", "measure", "--listen", f"127.0.0.1:{port}", "--secret", str(secret)]
        child = subprocess.Popen(
            [sys.executable, "-m", "syncd.torch.server", *argv, "--state", f"{directory}/state"],
            stderr=subprocess.DEVNULL,
        )
        listener = socket.create_server(("127.0.0.1", 0))
        other = multiprocessing.Process(target=echo, args=(listener, size), daemon=True)
        other.start()
        bare = socket.create_connection(listener.getsockname())
        target, source = bytearray(size), torch.randn(size // 4)
        copy_to = torch.empty_like(source)
        try:
            place = _link.Place("127.0.0.1", port, server.load_secret(secret))
            while not _link.is_live(place):
                time.sleep(0.1)
            for way in ("shared memory", "TCP"):
                hello = {
                    "identity": "measure",
                    "nonce": way,
                    "sequence": 0,
                    "fresh": True,
                    "launch": ("", 0),
                    "rank": 0,
                    "parameters": _parameters.describe_parameters(model),
                    "optimizer": {key: begun[key] for key in ("class", "groups")},
                    "shards": None,
                }
                link = _link.Link(place, hello, way == "shared memory")
                if link.state == "empty":
                    link.bring(begun, parameters, None)
                sequence = 0

                def exchange(life):
                    nonlocal sequence
                    sequence += 1
                    link.pull(parameters)
                    link.push(sequence, life, gradients, options)

                def baseline():
                    if way == "shared memory":
                        copy_to.copy_(source)
                        copy_to.copy_(source)
                        return
                    bare.sendall(memoryview(target))
                    view = memoryview(target)
                    while view:
                        view = view[bare.recv_into(view, 0, socket.MSG_WAITALL) :]

                exchange(link.news["life"])
                baseline()
                times = {"base": [], "moved": [], "stepped": []}
                for _ in range(ROUNDS):
                    times["base"].append(timed(baseline))
                    times["moved"].append(timed(lambda: exchange(0)))  # dropped when it is there
                    times["stepped"].append(timed(lambda: exchange(link.news["life"])))
                base, moved, stepped = (statistics.median(one) for one in times.values())
                print(
                    f"{way}: pull + push of {megabytes} MiB: {moved * 1e3:.0f} ms without the step, "
                    f"{stepped * 1e3:.0f} ms with it; baseline {base * 1e3:.0f} ms "
                    f"({2 * size / base / 1e9:.1f} GB/s): {base / moved:.0%} and {base / stepped:.0%}",
                    flush=True,
                )
                link.close()
        finally:
            other.kill()
            child.kill()
            child.wait()


def make():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(1, 8, 5), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
        torch.nn.Conv2d(8, 16, 5), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
        torch.nn.Flatten(), torch.nn.Linear(256, 10),
    )  # fmt: skip
    return (model, torch.optim.SGD(model.parameters(), lr=0.01), torch.randn(64, 1, 28, 28))


def cpu_of(pid):
    """Seconds of CPU that a process has used; 0: None."""
    if pid is None:
        return 0.0
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def train(rank, workers, address, seconds, ready, found):
    """Iterations of one worker, from when all are ready, and the CPU's seconds for them, with those of the
    server if this worker has started it. address None: without any exchange."""
    model, optimizer, inputs = make()
    labels = torch.randint(10, (64,))
    criterion = torch.nn.CrossEntropyLoss()
    if address is None:
        ready.wait()
        cpu = time.process_time()
        count, end = 0, time.perf_counter() + seconds
        while time.perf_counter() < end:
            optimizer.zero_grad()
            criterion(model(inputs), labels).backward()
            optimizer.step()
            count += 1
    else:
        import syncd.torch as st

        os.environ["SYNCD_ADDR"] = address
        with st.run(
            "asp", model, optimizer=optimizer, job="measure", rank=rank, world_size=workers
        ) as job:
            count, end = 0, None
            for _ in job.steps(iterations=1 << 40):
                if end is None:
                    ready.wait()
                    cpu = time.process_time()
                    server = job._child and job._child.pid
                    served = cpu_of(server)
                    end = time.perf_counter() + seconds
                loss = criterion(model(inputs), labels)
                loss.backward()
                job.push(loss, len(inputs))
                count += 1
                if time.perf_counter() > end:
                    cpu -= cpu_of(server) - served
                    break
    found.put((count, time.process_time() - cpu))


def rate(workers, address, seconds):
    context = multiprocessing.get_context("spawn")
    ready, found = context.Barrier(workers), context.Queue()
    group = [
        context.Process(target=train, args=(rank, workers, address, seconds, ready, found))
        for rank in range(workers)
    ]
    for one in group:
        one.start()
    counts, cpu = zip(*(found.get(timeout=120) for _ in group))
    for one in group:
        one.join()
    return sum(counts) / seconds, sum(cpu) / sum(counts) * 1e3


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--workers", type=int, default=4)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(
        f"torch {torch.__version__}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}",
        flush=True,
    )
    bandwidth(options.megabytes)
    if not options.workers:
        return
    with tempfile.TemporaryDirectory() as directory:
        daemon = subprocess.Popen(
            [
                f"{os.environ['SYNCD_TEST_BIN_DIR']}/syncd",
                "--store",
                "memory",
                "--unix",
                f"{directory}/s",
            ]
            + ["--tcp", "off", "--ready-file", f"{directory}/ready"],
            stderr=subprocess.DEVNULL,
        )
        try:
            while not os.path.exists(f"{directory}/ready"):
                time.sleep(0.05)
            rounds = [
                (
                    rate(options.workers, None, options.seconds),
                    rate(options.workers, f"unix:{directory}/s", options.seconds),
                )
                for _ in range(3)
            ]
        finally:
            daemon.terminate()
            daemon.wait()
    for (alone, cpu_alone), (served, cpu) in rounds:
        print(
            f"asp, {options.workers} workers: {served:.0f} iterations/s, without exchange {alone:.0f}: "
            f"{served / alone:.0%}; CPU {cpu:.1f} ms an iteration with the server's, {cpu_alone:.1f} ms without: "
            f"{cpu_alone / cpu:.0%}"
        )


if __name__ == "__main__":
    main()
