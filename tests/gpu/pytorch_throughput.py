#!/usr/bin/env python3
"""The trainer's `cnn` network (C3F2-Net) in PyTorch: training throughput on the same GPU, beside that of
bench_trainer_gpu. Prints a line per figure.

As there: the training images lie on the GPU as bytes; an iteration gathers a minibatch by its samples'
numbers, normalizes it, goes forwards and backwards, and takes a step with momentum and weight decay (biases
do not decay). Times are between CUDA events around ten iterations; the figure is the median of 50.

Exit status: 0; 77 no PyTorch that can use a GPU.
"""

import argparse
import statistics
import sys

NO_GPU = 77


def make_network(torch, classes=10):
    nn = torch.nn
    return nn.Sequential(
        nn.Conv2d(3, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * 4 * 4, 256), nn.ReLU(),
        nn.Linear(256, classes),
    ).cuda()


class Training:
    """One network and its iterations, made as PyTorch's users make them."""

    def __init__(self, torch, batch, precision):
        self.torch = torch
        self.precision = precision
        torch.manual_seed(1)
        images = 4096
        self.images = torch.randint(0, 256, (images, 3, 32, 32), dtype=torch.uint8, device="cuda")
        self.labels = torch.randint(0, 10, (images,), device="cuda")
        self.mean = torch.tensor([0.49, 0.48, 0.45], device="cuda").view(1, 3, 1, 1) * 255
        self.deviation = torch.tensor([0.25, 0.24, 0.26], device="cuda").view(1, 3, 1, 1) * 255
        self.chosen = torch.randint(0, images, (64, batch)).pin_memory()
        self.network = make_network(torch)
        self.loss = torch.nn.CrossEntropyLoss()
        named = list(self.network.named_parameters())
        self.optimizer = torch.optim.SGD(
            [{"params": [p for n, p in named if n.endswith("weight")], "weight_decay": 0.0005},
             {"params": [p for n, p in named if n.endswith("bias")], "weight_decay": 0}],
            lr=0.001, momentum=0.9)
        self.done = 0

    def iterate(self):
        torch = self.torch
        chosen = self.chosen[self.done % len(self.chosen)].cuda(non_blocking=True)
        self.done += 1
        x = (self.images[chosen].float() - self.mean) / self.deviation
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=self.precision == "bf16"):
            loss = self.loss(self.network(x), self.labels[chosen])
        loss.backward()
        self.optimizer.step()


def throughput(torch, batch, precision, rounds, iterations=10):
    tensors = precision == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = tensors
    torch.backends.cudnn.allow_tf32 = tensors
    torch.backends.cudnn.benchmark = True
    training = Training(torch, batch, precision)
    for _ in range(30):
        training.iterate()
    torch.cuda.synchronize()
    found = []
    for _ in range(rounds):
        start = torch.cuda.Event(enable_timing=True)
        end = torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(iterations):
            training.iterate()
        end.record()
        end.synchronize()
        found.append(1e3 * iterations * batch / start.elapsed_time(end))
    return statistics.median(found)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=50, help="measurements per figure (default 50)")
    rounds = parser.parse_args().rounds
    try:
        import torch
    except ImportError as error:
        print(f"pytorch_throughput.py: there is no PyTorch: {error}", file=sys.stderr)
        return NO_GPU
    if not torch.cuda.is_available():
        print(f"pytorch_throughput.py: PyTorch {torch.__version__} finds no GPU", file=sys.stderr)
        return NO_GPU
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}")
    for precision in ("float", "tf32", "bf16"):
        for batch in (128, 1024):
            figure = throughput(torch, batch, precision, rounds)
            print(f"cnn throughput  batch {batch:4d}  {precision:<5}  {'PyTorch, eager':<15} "
                  f"{figure:10.0f} samples/s (median of {rounds})", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
