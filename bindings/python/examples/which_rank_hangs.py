"""Which rank hangs? N processes meet after each iteration; the last one computes for ever.

python which_rank_hangs.py [N]    (SYNCD_ADDR: where the daemon listens)
"""

import multiprocessing
import sys
import time

import syncd


def train(rank, size, barrier, heard):
    def on_hang(event):
        print(f"rank {rank} hears: {event.text}", flush=True)
        heard.put(rank)

    with syncd.observe(
        "which-rank", hang_after=2, on_hang=on_hang, rank=rank, world_size=size
    ) as obs:
        for iteration in range(1000):
            with obs.step():
                time.sleep(0.01)  # forward and backward
                if rank == size - 1 and iteration == 5:
                    time.sleep(3600)
                obs.computed()
                barrier.wait()  # the all-reduce


if __name__ == "__main__":
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 4
    spawn = multiprocessing.get_context("spawn")
    barrier, heard = spawn.Barrier(size), spawn.Queue()
    ranks = [spawn.Process(target=train, args=(r, size, barrier, heard)) for r in range(size)]
    for process in ranks:
        process.start()
    for _ in ranks:
        heard.get()
    for process in ranks:
        process.kill()
