"""What the package needs; importing this raises ImportError, with a sentence, where it is missing."""

from __future__ import annotations

import re

_NEEDS = "syncd.torch needs PyTorch 1.13 or later"
_HELP = "install it with `pip install torch`, or as https://pytorch.org/get-started/locally says"

try:
    import torch
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise ImportError(f"{_NEEDS}, and this Python has none: {_HELP}", name="torch") from None

_version = str(torch.__version__)
_numbers = re.match(r"(\d+)\.(\d+)", _version)
if _numbers is not None and (int(_numbers[1]), int(_numbers[2])) < (1, 13):
    raise ImportError(f"{_NEEDS}, and this one is {_version}: {_HELP}", name="torch")
