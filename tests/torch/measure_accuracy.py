#!/usr/bin/env python3
"""What models reach under every policy of syncd.torch, beside one process that sees as many samples.

    SYNCD_LIBRARY=... SYNCD_TEST_BIN_DIR=... PYTHONPATH=bindings/python/src \\
        tests/torch/measure_accuracy.py [--workers 4] [--seeds 3] [--workloads cnn,mf] [--policies ...]

cnn: a small network on images in CIFAR-10's format; test accuracy in percent, higher is better.
mf: matrix factorization with ratings in MovieLens' format; root mean square error on held-out ratings, lower
is better. `reference_trainer` generates both. Each worker has the samples w, w + workers, ... of the training
set. A line a policy: the mean over the seeds, lowest and highest, of the model of worker 0. Models of
workers differ under hop and notify_ack, where worker 0 has one of them. Under bsp and elastic_bsp it is the
last mean, as a checkpoint has it: not what worker 0 made of it in the steps after that.
"""

import argparse
import copy
import os
import pathlib
import subprocess
import sys
import tempfile

import torch

from support import Daemon, program

POLICIES = [
    "one process",
    "bsp",
    "elastic_bsp:8",
    "asp",
    "ssp:3",
    "dssp:1-4",
    "specsync+asp",
    "naive_wait:2+asp",
    "hop:ring_based,backup=1,max_ig=4",
    "notify_ack:ring",
]
SAMPLES = {"cnn": 4000, "mf": 25000}  # of training, in all


def images(directory):
    def read(name):
        raw = torch.frombuffer(bytearray((directory / name).read_bytes()), dtype=torch.uint8).view(-1, 3073)
        return raw[:, 1:].reshape(-1, 3, 32, 32).float() / 128 - 1, raw[:, 0].long()

    parts = [read(path.name) for path in sorted(directory.glob("data_batch_*.bin"))]
    trained = torch.cat([one for one, _ in parts]), torch.cat([label for _, label in parts])
    return trained, read("test_batch.bin")


class Cnn:
    batch, passes, rate = 20, 24, 0.01

    def __init__(self, directory):
        self.trained, self.held_out = images(directory)
        self.model = torch.nn.Sequential(
            torch.nn.Conv2d(3, 8, 5, stride=2, padding=2),
            torch.nn.BatchNorm2d(8),
            torch.nn.ReLU(),
            torch.nn.MaxPool2d(2),
            torch.nn.Conv2d(8, 16, 3, padding=1),
            torch.nn.ReLU(),
            torch.nn.MaxPool2d(2),
            torch.nn.Flatten(),
            torch.nn.Linear(256, 10),
        )

    def loss(self, inputs, labels):
        return torch.nn.functional.cross_entropy(self.model(inputs), labels)

    def score(self):
        self.model.eval()
        inputs, labels = self.held_out
        return (self.model(inputs).argmax(1) == labels).float().mean().item() * 100


class Mf:
    batch, passes, rate = 50, 10, 0.2

    def __init__(self, directory):
        lines = (directory / "u.data").read_text().split("\n")
        rows = torch.tensor([[float(word) for word in line.split("\t")[:3]] for line in lines if line])
        pairs, ratings = rows[:, :2].long(), rows[:, 2]
        order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(1))
        held, rest = order[: len(rows) // 10], order[len(rows) // 10 :]
        self.trained, self.held_out = (pairs[rest], ratings[rest]), (pairs[held], ratings[held])
        self.mean = ratings[rest].mean()
        users, items = pairs.max(0).values + 1
        self.model = torch.nn.ModuleList([torch.nn.Embedding(int(users), 9), torch.nn.Embedding(int(items), 9)])
        for one in self.model:
            torch.nn.init.normal_(one.weight, std=0.1)

    def predicted(self, pairs):
        users, items = (one(pairs[:, at]) for at, one in enumerate(self.model))
        return self.mean + (users[:, 1:] * items[:, 1:]).sum(1) + users[:, 0] + items[:, 0]

    def loss(self, pairs, ratings):
        # A row steps with the gradients of its own ratings, as matrix factorization by SGD does.
        return ((self.predicted(pairs) - ratings) ** 2).sum() / 10

    def score(self):
        pairs, ratings = self.held_out
        return ((self.predicted(pairs) - ratings) ** 2).mean().sqrt().item()


def train(workload, directory, policy, seed):
    import syncd.torch as st

    torch.set_num_threads(1)
    torch.manual_seed(seed)
    given = {"cnn": Cnn, "mf": Mf}[workload](pathlib.Path(directory))
    rank, workers = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    # Where models are averaged a step counts 1/workers, so it is as many times longer.
    averages = policy.startswith(("bsp", "elastic_bsp", "hop", "notify_ack"))
    rate = given.rate * (workers if averages else 1)
    optimizer = torch.optim.SGD(given.model.parameters(), lr=rate)
    inputs, labels = given.trained
    iterations = len(inputs) * given.passes // given.batch // workers
    if policy != "one process":
        inputs, labels = inputs[rank::workers], labels[rank::workers]
    torch.manual_seed(1000 * seed + rank)
    data = torch.utils.data.TensorDataset(inputs, labels)
    loader = torch.utils.data.DataLoader(data, batch_size=given.batch, shuffle=True)
    if policy == "one process":
        for _ in range(given.passes):
            for batch in loader:
                optimizer.zero_grad()
                given.loss(*batch).backward()
                optimizer.step()
    else:
        averagings, mean = 0, None
        with st.run(policy, given.model, optimizer=optimizer, job="accuracy") as job:
            for _, batch in job.steps(loader, iterations=iterations):
                if job.form == "averaging" and job.averagings > averagings:
                    averagings, mean = job.averagings, copy.deepcopy(given.model.state_dict())
                optimizer.zero_grad()
                loss = given.loss(*batch)
                loss.backward()
                if job.form == "averaging":
                    optimizer.step()
                (job.mix if job.form == "neighbours" else job.push)(loss)
        if mean is not None and job.averagings == averagings:
            given.model.load_state_dict(mean)
    with torch.no_grad():
        print(f"score {given.score()}")


def score(workload, directory, policy, seed, workers):
    workers = 1 if policy == "one process" else workers
    with tempfile.TemporaryDirectory() as temporary:
        daemon = Daemon(pathlib.Path(temporary))
        try:
            processes = []
            for rank in range(workers):
                argv = [sys.executable, __file__, "--train", workload, directory, policy, str(seed)]
                environment = {
                    **os.environ,
                    "RANK": str(rank),
                    "WORLD_SIZE": str(workers),
                    "SYNCD_ADDR": daemon.address,
                    "OMP_NUM_THREADS": "1",
                }
                processes.append(subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE, text=True))
            said = [one.communicate()[0] for one in processes]
            assert all(one.returncode == 0 for one in processes), said
            return float(said[0].split()[-1])
        finally:
            daemon.kill()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--workloads", default="cnn,mf")
    parser.add_argument("--policies", nargs="+", default=POLICIES)
    parser.add_argument("--train", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.train:
        return train(*arguments.train[:3], int(arguments.train[3]))
    for workload in arguments.workloads.split(","):
        with tempfile.TemporaryDirectory() as directory:
            trainer = [program("reference_trainer"), "--workload", workload, "--generate", "--virtual-time"]
            trainer += ["--data-dir", directory, "--samples", str(SAMPLES[workload]), "--max-iterations", "1"]
            subprocess.run([*trainer, "--policy", "asp"], check=True, stdout=subprocess.DEVNULL)
            for policy in arguments.policies:
                found = [
                    score(workload, directory, policy, seed, arguments.workers)
                    for seed in range(1, arguments.seeds + 1)
                ]
                mean = sum(found) / len(found)
                print(f"{workload:4} {policy:34} {mean:8.3f}  {min(found):8.3f} to {max(found):.3f}", flush=True)


if __name__ == "__main__":
    main()
