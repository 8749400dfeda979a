"""Checkpoints of a replica: one folder, into which each of its ranks saves its part."""

from __future__ import annotations

import contextlib
import os
import pathlib
from typing import Any, Callable

import torch

from ..checkpoint import Found, Saver, _remove, _sync
from ..errors import Status, error_of
from . import _compat
from ._replica import Replica, local_state, spread_state

_TIMEOUT_S = 3600.0  # until all ranks have saved, or loaded


class ReplicaSaver(Saver):
    """A Saver of all ranks of a replica, which make its calls together. The leader alone speaks to the daemon.

    state  what to save: "model" and "optimizer" as their state_dict(), of whose DTensors each rank saves its
           part, and what else there is
    """

    def __init__(
        self,
        replica: Replica,
        worker: Any,
        directory: str | os.PathLike[str],
        state: Callable[[], dict[str, Any]],
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer | None,
    ) -> None:
        super().__init__(worker, directory, state)
        self._replica = replica
        self._model = model
        self._optimizer = optimizer

    def save_as(self, number: int, iteration: int) -> str | None:
        replica, worker = self._replica, self.worker
        name = f"{worker.job}-{number}-{iteration}-{replica.size}ranks.ckpt"
        part, path = self.directory / f".{name}", self.directory / name

        def prepare() -> bool:
            """Whether it is this replica that saves."""
            if worker.checkpoint_shard(number)[0] != 0:
                return False
            if part.exists():
                _remove(part)  # of a try that did not end
            part.mkdir()
            return True

        if not replica.share(prepare):
            self.decline(number)
            return None
        with self._phase():
            try:
                self._together(lambda: self._save_own(part))
                if replica.leads:
                    _sync(part)
                    if path.is_dir():
                        _remove(path)  # of a try at the same checkpoint that others did not complete
                    os.replace(part, path)
            finally:
                if replica.leads and part.exists():
                    _remove(part)
            if replica.leads:
                self._say(number, str(path), 0, 1)
        return str(path)

    def decline(self, number: int) -> None:
        if self._replica.leads:
            super().decline(number)

    def load(self) -> Found | None:
        def read(location: str) -> Any:
            return self._together(lambda: self._load_own(pathlib.Path(location)))

        return self._read(lambda: self._replica.share(self._find), read)

    def _phase(self) -> contextlib.AbstractContextManager[Any]:
        if self._replica.leads:
            return self.worker.phase("checkpoint", lease=self._lease, timeout=0)
        return contextlib.nullcontext()

    def _together(self, work: Callable[[], Any]) -> Any:
        """An exception of one rank is one of all."""
        failure = result = None
        try:
            result = work()
        except Exception as error:
            failure = error
        self._replica.agree(failure, lambda: None, _TIMEOUT_S)
        return result

    def _of_rank(self, folder: pathlib.Path) -> pathlib.Path:
        return folder / f"rank{self._replica.rank}.pt"

    def _save_own(self, folder: pathlib.Path) -> None:
        _compat.reshard(self._model)
        state = self._state()
        model = state["model"]
        spread = {name: _compat.described(one) for name, one in model.items()}
        model.update({name: _compat.local(one) for name, one in model.items()})  # it has attributes, too
        if state["optimizer"] is not None:
            of_optimizer = local_state(state["optimizer"]["state"])
            state["optimizer"] = {**state["optimizer"], "state": of_optimizer}
        path = self._of_rank(folder)
        self._save_to({**state, "ranks": self._replica.size, "spread": spread}, str(path))
        _sync(path)

    def _load_own(self, folder: pathlib.Path) -> dict[str, Any]:
        path = self._of_rank(folder)
        if not path.exists():
            raise error_of(
                Status.E_INVALID,
                f"there is no {path}; allowed: to continue with as many ranks in a replica as had saved, which all "
                "see the directory, or with another directory as checkpoint=",
            )
        state: dict[str, Any] = self._load_from(str(path))
        if state["ranks"] != self._replica.size:
            raise error_of(
                Status.E_INVALID,
                f"{folder} was saved by a replica of {state['ranks']} ranks, and this one has {self._replica.size}; "
                "allowed: as many, or another directory as checkpoint=",
            )
        like, model = self._model.state_dict(), state["model"]
        for name, one in model.items():
            if name not in like:
                continue  # load_state_dict() names it
            if _compat.described(like[name]) != state["spread"][name]:
                raise error_of(
                    Status.E_INVALID,
                    f"{name} was saved{state['spread'][name] or ' whole'}, and is "
                    f"here{_compat.described(like[name]) or ' whole'}; allowed: as it was saved, or another "
                    "directory as checkpoint=",
                )
            if _compat.is_distributed(like[name]):
                model[name] = _compat.distributed_like(one.to(_compat.local(like[name]).device), like[name])
        if state["optimizer"] is not None and self._optimizer is not None:
            of_optimizer = spread_state(self._optimizer, state["optimizer"]["state"])
            state["optimizer"] = {**state["optimizer"], "state": of_optimizer}
        return state
