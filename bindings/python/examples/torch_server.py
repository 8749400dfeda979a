"""A parameter server: workers send gradients and take parameters, each at its own pace.

    python3 -m syncd.torchrun --standalone --nproc-per-node=2 torch_server.py

Under ssp:3 no worker is more than 3 iterations ahead of another. Matrix factorization: 60 users rate 40
films, each worker has some of the ratings.
"""

import sys

import torch

import syncd.torch as st

torch.manual_seed(7)
ratings = torch.randn(60, 3) @ torch.randn(3, 40)  # the same everywhere
users, films = torch.nn.Embedding(60, 8), torch.nn.Embedding(40, 8)
model = torch.nn.ModuleList([users, films])
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)


def error(user, film):
    return torch.nn.functional.mse_loss((users(user) * films(film)).sum(1), ratings[user, film])


with st.run("ssp:3", model, optimizer=optimizer, job="mf") as job:
    rank, workers = job.worker.rank, job.worker.world_size
    rated = torch.arange(rank, 2400, workers)
    loader = torch.utils.data.DataLoader(rated, batch_size=128, shuffle=True)
    for step, cell in job.steps(loader, iterations=400):
        loss = error(cell // 40, cell % 40)
        loss.backward()
        job.push(loss, samples=len(cell))  # the server's Adam steps
    job.finish()  # waits for the others: the model has all updates

cells = torch.arange(2400)
rest = error(cells // 40, cells % 40).item()
print(f"worker {rank}: error {rest:.5f}")
sys.exit(not rest < 0.05)
