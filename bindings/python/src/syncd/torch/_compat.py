"""What differs between versions of PyTorch."""

from __future__ import annotations

import torch


def note_step(optimizer: torch.optim.Optimizer) -> None:
    """A step was made elsewhere: schedulers of the learning rate warn if they see none before theirs."""
    optimizer._opt_called = True  # torch 2.4 and later
    optimizer._step_count = getattr(optimizer, "_step_count", 0) + 1
