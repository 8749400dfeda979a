"""A parameter server in one process, kept in step by syncd.

    python3 parameter_server.py [WORKERS [ITERATIONS [POLICY]]]      for instance: 4 200 ssp:3

The "server" is an object behind a lock, the workers are threads that share one client, and the
model is y = a*x + b, each worker with points of its own. In a real job the workers are processes on
many machines and the server is whatever the trainer already uses: the calls stay as they are.
"""

import sys
import threading

import syncd

TRUE_A, TRUE_B, LEARNING_RATE, POINTS = 3.0, -1.0, 0.3, 64

workers = int(sys.argv[1]) if len(sys.argv) > 1 else 4
iterations = int(sys.argv[2]) if len(sys.argv) > 2 else 200
policy = sys.argv[3] if len(sys.argv) > 3 else "ssp:3"
server = {"a": 0.0, "b": 0.0}
lock = threading.Lock()
finished = []


def gradient(rank, a, b):
    """The gradient of half the mean squared error over this worker's points, and that error."""
    xs = [(i * workers + rank) / (POINTS * workers) * 2 - 1 for i in range(POINTS)]
    misses = [a * x + b - (TRUE_A * x + TRUE_B) for x in xs]
    da = sum(miss * x for miss, x in zip(misses, xs)) / POINTS
    return da, sum(misses) / POINTS, sum(miss * miss for miss in misses) / (2 * POINTS)


def train(client, rank):
    with client.join("parameter-server", policy, rank=rank, world_size=workers) as worker:
        for step in worker.steps(iterations):  # waits until the policy lets this worker go on
            while True:  # compute; again on fresher parameters if syncd advises it meanwhile
                with lock:
                    a, b = server["a"], server["b"]
                da, db, loss = gradient(rank, a, b)
                if not worker.should_resync():
                    break
                worker.restarted()
            with lock:  # make the update visible to the others, then say so
                server["a"] -= LEARNING_RATE / workers * da
                server["b"] -= LEARNING_RATE / workers * db
            worker.push(loss=loss, samples=POINTS)
    finished.append(rank)


with syncd.connect() as client:
    threads = [threading.Thread(target=train, args=(client, rank)) for rank in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
print(f"{workers} workers under {policy}: y = {server['a']:.3f} x {server['b']:+.3f}")
good = abs(server["a"] - TRUE_A) <= 0.1 and abs(server["b"] - TRUE_B) <= 0.1
sys.exit(not (good and len(finished) == workers))
