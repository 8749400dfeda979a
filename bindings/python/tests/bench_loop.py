"""How long begin() and push() take together, beside the C interface in the same run.

    bench_loop.py [ITERATIONS [LOOP]]      LOOP: the program abi_loop of the build's tests

Finds the daemon through SYNCD_ADDR. Rounds of both alternate; one worker, policy asp. Figures for
people: nothing fails because of them."""

import re
import statistics
import subprocess
import sys
import time

import syncd

ROUNDS = 15
iterations = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
loop = sys.argv[2] if len(sys.argv) > 2 else None


def python_us(client, number):
    spans = []
    with client.join(f"python-{number}", "asp", rank=0, world_size=1) as worker:
        for _ in range(iterations):
            start = time.perf_counter_ns()
            worker.begin()
            worker.push(loss=0.5, samples=32)
            spans.append((time.perf_counter_ns() - start) / 1e3)
    return statistics.median(spans)


def c_us():
    out = subprocess.run([loop, "1", str(iterations), "asp"], check=True, capture_output=True)
    return float(re.search(r"([0-9.]+) us", out.stdout.decode()).group(1))


with syncd.connect() as client:
    rows = [(python_us(client, i), c_us() if loop else None) for i in range(ROUNDS)]
    with client.join("asked", "asp", rank=0, world_size=1) as worker:
        start = time.perf_counter_ns()
        for _ in range(100_000):
            worker.should_resync()
        ask_us = (time.perf_counter_ns() - start) / 1e3 / 100_000
python = statistics.median(row[0] for row in rows)
print(f"Python  begin + push: {python:.1f} us, median of {ROUNDS} rounds of {iterations}")
if loop:
    print(f"C       begin + push: {statistics.median(row[1] for row in rows):.1f} us")
    print(f"Python - C: {statistics.median(p - c for p, c in rows):.1f} us, median of the rounds'")
print(f"should_resync(): {ask_us:.2f} us")
