"""Parameters on a server: asp, ssp, dssp, specsync+..., naive_wait:MS+..., and bsp."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import pathlib
import random
import re
import secrets
import socket
import subprocess
import sys
import time
from hashlib import sha256
from typing import Any, Callable, Iterator, TypeVar

import torch

from .._auto import place_of
from .._private import write_private
from .._values import MemberState, Pushed, Step
from ..errors import Error, Status, error_of
from ._compat import note_step
from ._job import IF_FINISHED, Job, Options, number_of
from ._link import Link, NotFinite, Place, is_live
from ._parameters import describe_optimizer, describe_options, describe_parameters
from .server import IDLE_S, load_secret, secret_file, state_directory

_log = logging.getLogger("syncd")
_T = TypeVar("_T")

_PAUSE_FIRST_S = 0.05
_PAUSE_MAX_S = 1.0
_SAY_S = 10.0
_START_S = 600.0  # as long as begin() waits for the others


class ServerJob(Job):
    """A job whose workers send gradients to a parameter server, and take parameters from it.

        with st.run("ssp:3", model, optimizer=optimizer, job="mf") as job:
            for step, (inputs, labels) in job.steps(loader, iterations=1000):
                loss = criterion(model(inputs), labels)
                loss.backward()
                job.push(loss)

    server          "host:port" of a server that was started by `python -m syncd.torch.server`; None:
                    worker 0 starts one on its machine, as a process of its own, which ends 5 s after the
                    last worker has left, or 60 s after the last one was lost
    server_secret   the file with that server's secret; None: ~/.config/syncd/server.secret
    server_timeout  seconds for which a worker waits for a server that is not there, or, after worker 0 has
                    finished or left, for its parameters, before syncd.Error
    shards          threads of the server that apply updates, each to a part of the parameters; None: by size
    shared_memory   False: by TCP also on the server's machine

    The optimizer steps on the server: its class, options and state go there from worker 0, its step() is
    not called here. Each update carries the options of this worker's parameter groups, so a scheduler of
    the learning rate works as usual. Each update is one step: gradients of several workers are not averaged.

    All workers begin with worker 0's parameters. A worker that joins later, or comes back, begins with the
    server's. Buffers (running means of batch normalization) stay with each worker; a checkpoint has those
    of the worker that saves it, as a rule worker 0.

    A server that is lost comes back only from a checkpoint (checkpoint=DIR): worker 0 starts it again; of
    one that was started by hand, the lowest worker brings the checkpoint. Updates after the checkpoint
    are lost and counted; gradients of the lost parameters are dropped and counted.

    lost_updates     updates that were applied, and then lost with a server
    dropped_updates  updates that the present server did not apply, because they were computed from
                     parameters of one that was lost

    Both are as the server's latest answer says. A worker that waits for a server still counts as computing.
    """

    form = "server"

    def __init__(
        self,
        options: Options,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer | None,
        *,
        server: str | None = None,
        server_secret: str | os.PathLike[str] | None = None,
        server_timeout: float = 60.0,
        shards: int | None = None,
        shared_memory: bool = True,
    ) -> None:
        super().__init__(options, model, optimizer)
        if optimizer is None:
            raise error_of(
                Status.E_INVALID,
                f"{options.policy} without optimizer=; allowed: the model's optimizer",
            )
        _refuse_backup(options.policy)
        if not server_timeout > 0:
            raise error_of(
                Status.E_INVALID, f"server_timeout={server_timeout}; allowed: seconds above 0"
            )
        if shards is not None and shards < 1:
            raise error_of(Status.E_INVALID, f"shards={shards}; allowed: 1 or more, or None")
        self._optimizer = optimizer
        self._begun = describe_optimizer(model, optimizer)
        self._names = [name for name, _ in model.named_parameters()]
        self._parameters = list(model.parameters())
        self._timeout = server_timeout
        self._shards = shards
        self._shared_memory = shared_memory
        self._given = None
        if server is not None:
            place = _given_place(server, server_secret)
            self._given = place._replace(identity=self._given_identity())
        self._own_place: Place | None = None
        self._listener: socket.socket | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._link: Link | None = None
        self._latest: Place  # where it was connected
        self._nonce = secrets.token_hex(16)
        self._sequence = 0  # of the latest update that the server has answered
        self._sent = 0  # of the latest that may have reached it: no other update gets that number
        self._life = 0  # of the server from which the model's parameters come
        self._has_pushed = False  # since the latest pull
        self._fresh = True  # has not taken part yet
        self._failed = False
        self._has_left = False  # the job
        self.lost_updates = 0
        self.dropped_updates = 0

    # ---- Joining

    def _join_options(self) -> dict[str, Any]:
        rank = _expected_rank(self._options.rank)
        if self._given is not None or rank not in (0, None):
            return {}
        if self._own_place is None:
            self._own_place = self._noted_place() or self._reserve()
        place = self._own_place
        return {"data": _shown(place).encode()}

    def _opened(self) -> None:
        _refuse_backup(self.worker.policy)
        if self.worker.rank != 0 and self._listener is not None:
            self._listener.close()
            self._listener = self._own_place = None
        self.pull()

    def _files(self) -> pathlib.Path:
        """Where the address, the ledger and the log of this job's server lie, without suffix."""
        return state_directory() / f"server-{self._own_identity()[:16]}"

    def _job_name(self) -> str:
        """As the library resolves it."""
        return os.environ.get("SYNCD_JOB") or self._options.job or "default"

    def _own_identity(self) -> str:
        """Of the job on a server that worker 0 starts. The others learn it from worker 0, as they may reach
        the daemon at another address."""
        parts = (self._client.address, self._job_name(), place_of(os.environ).launch)
        return sha256(repr(parts).encode()).hexdigest()

    def _given_identity(self) -> str:
        """Of the job on a server that was started by hand: its name, and where it has none of its own what
        started it."""
        name = self._job_name()
        return name if name != "default" else f"default ({place_of(os.environ).launch})"

    def _noted_place(self) -> Place | None:
        """Of the live server of this job that an earlier worker 0 has started on this machine."""
        try:
            place = _read_place(pathlib.Path(f"{self._files()}.json").read_text())
        except OSError:
            return None
        if place is None or place.identity != self._own_identity():
            return None
        return place if is_live(place) else None

    def _reserve(self) -> Place:
        """An address for a server that this process may start."""
        host, bound = self._hosts()
        self._listener = _listen(bound, 0)
        port = self._listener.getsockname()[1]
        return Place(host, port, secrets.token_bytes(32), self._own_identity())

    def _hosts(self) -> tuple[str, str]:
        """Where workers reach a server on this machine, and at which address it listens."""
        host = self._own_host()
        if host == "127.0.0.1":
            return host, host
        return host, "::" if ":" in host else "0.0.0.0"

    # ---- The loop

    def push(self, loss: Any = None, samples: int = 0) -> Pushed:
        """Sends the gradients to the server and waits until they are applied, tells the daemon, and clears
        the gradients.

        loss     of this iteration: a number or a tensor of one element
        samples  in this update

        A parameter whose gradient is None is not changed. Sparse gradients are sent dense.
        Raises Error: SYNCD_E_INVALID for a gradient that is not finite (nothing of the update is applied),
        SYNCD_E_UNREACHABLE if the server is lost, and after server_timeout: whether the update is applied is
        not known then; SYNCD_E_STATE when it is called twice for a batch; and what Worker.push() does.
        """
        self._check_not_done()
        loss = number_of(loss)
        gradients = [one.grad for one in self._parameters]
        self.worker.mark()
        self._sent = sent = self._sent + 1
        self._with_server(lambda link: self._send(link, sent, gradients))
        self._sequence = sent
        self._has_pushed = True
        self._drop_gradients()
        note_step(self._optimizer)
        size = sum(one.numel() * one.element_size() for one in gradients if one is not None)
        return self._push(loss, samples, size)

    def pull(self) -> None:
        """Renews the model's parameters from the server. steps() does it where the policy says."""
        self._with_server(self._take)

    def finish(self) -> None:
        """Leaves the job, waits until no other worker trains any more, and pulls: then the model has the
        updates of all workers. At the end of the `with` block, of each worker whose model is used:

            with st.run("ssp:3", model, optimizer=optimizer, job="mf") as job:
                for step, (inputs, labels) in job.steps(loader, iterations=1000): ...
                job.finish()

        A worker that was lost is not waited for; after the loss of the server, nor is one that does not come
        to the new one within 60 s. Raises Error: SYNCD_E_UNREACHABLE if the server is lost meanwhile and does
        not come back.
        """
        if not self._has_left:
            self._leave_in_order()
            self._has_left = self._done = True  # which refuses push()
        pause, say_at, level = _PAUSE_FIRST_S, time.monotonic() + _SAY_S, logging.WARNING
        while others := self._with_server(lambda link: link.finish()):
            if time.monotonic() >= say_at:
                say_at = time.monotonic() + _SAY_S
                who = ", ".join(map(str, others))
                _log.log(level, "%s: finish() waits for the end of worker %s", self._who(), who)
                level = logging.INFO
            time.sleep(pause)
            pause = min(2 * pause, _PAUSE_MAX_S)
        self.pull()

    def _take(self, link: Link) -> None:
        link.pull(self._parameters)
        self._life = link.news["life"]
        self._has_pushed = False

    def _send(self, link: Link, sequence: int, gradients: list[torch.Tensor | None]) -> None:
        options = describe_options(self._optimizer)
        try:
            link.push(sequence, self._life, gradients, options)
        except NotFinite as found:
            raise error_of(
                Status.E_INVALID,
                f"{self._who()}, iteration {self.iteration}: the gradient of {self._names[found.at]} has a "
                "value that is not finite; nothing of this update was applied. Lower the learning rate, clip "
                "the gradients, or skip this batch",
            ) from None

    def _granted(self, step: Step) -> None:
        link = self._link
        # A step that says nothing of a pull knows of the others' updates only.
        is_old = self._has_pushed or step.pull or step.skip
        if is_old or link is None or link.news["life"] != self._life:
            self.pull()

    def _is_dropped(self) -> str:
        if all(one.grad is None for one in self._parameters):
            return ""
        return " (its gradients are dropped: step.micro_batches(N) adds up those of several batches)"

    def _pass_over(self) -> None:
        self._drop_gradients()
        super()._pass_over()

    def _drop_gradients(self) -> None:
        for one in self._parameters:
            one.grad = None

    # ---- Re-sync

    def _before_iteration(self) -> Any:
        if "specsync" not in self.worker.policy:
            return None
        buffers = [one.clone() for one in self.model.buffers()]
        on_gpus = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
        return buffers, torch.get_rng_state(), on_gpus, random.getstate()

    def _restarts(self, before: Any) -> bool:
        if before is None or not self.worker.should_resync():
            return False
        self._drop_gradients()
        buffers, on_cpu, on_gpus, plain = before
        with torch.no_grad():
            for one, saved in zip(self.model.buffers(), buffers):
                one.copy_(saved)
        torch.set_rng_state(on_cpu)
        if on_gpus:
            torch.cuda.set_rng_state_all(on_gpus)
        random.setstate(plain)
        self.worker.restarted()
        self.pull()
        return True

    # ---- Checkpoints

    def _state(self) -> dict[str, Any]:
        """The server's, and its parameters in the model. Of the model the saver already holds the tensors,
        not copies: it saves these parameters."""
        found = self._with_server(lambda link: link.snapshot())
        values = found.pop("values")
        with torch.no_grad():
            for name, one in zip(self._names, self._parameters):
                one.copy_(values[name])
        assert self._link is not None
        self._life = self._link.news["life"]
        return found

    def _load_state(self, state: dict[str, Any]) -> None:
        for what in ("class", "groups"):
            if state[what] != self._begun[what]:
                raise ValueError(
                    f"its optimizer's {what}: {state[what]}; here: {self._begun[what]}"
                )
        self._begun = state

    # ---- The end

    def _closing(self, error: BaseException | None) -> None:
        if error is None and self._link is not None:
            try:
                self.pull()
            except Error as lost:
                _log.warning("%s: the model has not the last updates: %s", self._who(), lost)
        self._failed = error is not None

    def _closed(self) -> None:
        if self._link is not None:
            if not self._failed:
                self._link.say_goodbye()
            self._link.close()
        if self._listener is not None:
            self._listener.close()

    # ---- The connection

    def _with_server(self, call: Callable[[Link], _T]) -> _T:
        """call(link); again over a new connection if the one it had breaks."""
        while True:
            if self._link is None:
                self._link = self._connect()
                self._fresh = False
            link = self._link
            try:
                with self._naming_worker():
                    result = call(link)
            except Error:
                raise
            except BlockingIOError:
                link.close()  # its answer would be taken for that of the next call
                self._link = None
                raise error_of(
                    Status.E_UNREACHABLE,
                    f"{self._who()}: the parameter server at {link.place} has not answered for "
                    f"{self._timeout:g} s; if it is only slow, wait longer with server_timeout=",
                ) from None
            except (OSError, EOFError) as broken:
                _log.warning(
                    "%s: lost the parameter server at %s: %s", self._who(), link.place, broken
                )
                link.close()
                self._link = None
                continue
            except BaseException:  # in the middle of a message
                link.close()
                self._link = None
                raise
            self.lost_updates = link.news["lost_updates"]
            self.dropped_updates = link.news["dropped_updates"]
            return result

    @contextlib.contextmanager
    def _naming_worker(self) -> Iterator[None]:
        """In what the server says."""
        try:
            yield
        except Error as error:
            who = f"{self._who()}: "
            if error.message.startswith(who[:-2]):
                raise
            raise error_of(error.code, who + error.message) from None

    def _hello(self, place: Place) -> dict[str, Any]:
        return {
            "identity": place.identity,
            "nonce": self._nonce,
            "sequence": self._sequence,
            "fresh": self._fresh,
            "launch": _launch(),
            "rank": self.worker.rank,
            "parameters": describe_parameters(self.model),
            "optimizer": {key: self._begun[key] for key in ("class", "groups")},
            "shards": self._shards,
        }

    def _connect(self) -> Link:
        """Waits for a server that has parameters, starts it if that is this worker's part."""
        begun = time.monotonic()
        say_at, level = begun + _SAY_S, logging.WARNING
        until = begun + self._timeout
        pause, why = _PAUSE_FIRST_S, f"worker 0 has not shown its address{IF_FINISHED}"
        while True:
            is_alone = self._worker_0_has_gone()
            places = self._places()
            is_awaited = not places
            for place in places:
                link = None
                try:
                    with self._naming_worker():
                        link = Link(place, self._hello(place), self._shared_memory, self._timeout)
                        if link.state == "empty" and self._brings(time.monotonic() - begun):
                            link.bring(*self._to_begin(), self._shards)
                except Error:
                    raise
                except (OSError, EOFError) as error:
                    if link is not None:
                        link.close()
                    why = f"{place}: {self._check_may_return(place, error) or error}"
                    continue
                if link.state == "ready":
                    self._latest = place
                    return link
                link.close()
                if link.state == "refused":
                    raise error_of(Status.E_INVALID, f"{self._who()}, server {place}: {link.text}")
                why = f"{place} waits for worker {0 if self._fresh else 'of the lowest rank'}"
                is_awaited = True
            if is_alone:
                why += "; worker 0 has finished or left: start it, too"
            elif is_awaited:
                # For another worker a new one waits as long as its begin() would.
                until = min(time.monotonic() + self._timeout, begun + _START_S)
            now = time.monotonic()
            if now >= until:
                raise error_of(
                    Status.E_UNREACHABLE,
                    f"{self._who()}: no parameter server for {now - begun:.0f} s ({why}); wait longer with "
                    "server_timeout=, or start the job again",
                )
            if now >= say_at:
                say_at = now + _SAY_S
                _log.log(level, "%s: waiting for the parameter server: %s", self._who(), why)
                level = logging.INFO
            time.sleep(pause)
            pause = min(2 * pause, _PAUSE_MAX_S)

    def _worker_0_has_gone(self) -> bool:
        """Whether this is a new process in a job whose worker 0 has finished or left. All workers may be
        started again just now, and worker 0 come later than this one; but it may also never come."""
        if not self._fresh or self.worker.rank == 0:
            return False
        members = self.worker.members().members
        return any(one.rank == 0 and one.state == MemberState.LEFT for one in members)

    def _places(self) -> list[Place]:
        """Where the server may be."""
        if self._given is not None:
            return [self._given]
        if self._own_place is not None:
            if self._listener is not None:
                self._check_alone()
                self._start(self._own_place)
            return [self._own_place]
        if self._has_left:  # and is told of members no more
            return [self._latest]
        found = []
        members = self.worker.members().members
        for member in sorted(members, key=lambda one: one.state != MemberState.ACTIVE):
            place = _read_place(member.data)
            if place is not None and place not in found:
                found.append(place)
        return found

    def _check_alone(self) -> None:
        """Refuses to begin anew beside workers that train: their server is elsewhere, or lost."""
        if not self._fresh or self.resumed:
            return
        for one in self.worker.members().members:
            if one.rank != self.worker.rank and one.state == MemberState.ACTIVE and one.clock > 0:
                raise error_of(
                    Status.E_STATE,
                    f"{self._who()}: worker {one.rank} ({one.host}) is in iteration {one.clock}, and this "
                    "machine has no server of the job; start worker 0 where it ran before, or start all "
                    "workers again",
                )

    def _start(self, place: Place) -> None:
        """A server as a process of its own, on the socket that listens already."""
        assert self._listener is not None
        files = self._files()
        write_private(pathlib.Path(f"{files}.json"), _shown(place))
        descriptor = self._listener.fileno()
        options = ["--job", self.worker.job, "--fd", str(descriptor), "--secret", "-"]
        options += ["--state", str(files), "--idle", str(IDLE_S)]
        with open(
            os.open(f"{files}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w"
        ) as log:
            self._child = subprocess.Popen(
                [sys.executable, "-m", "syncd.torch.server", *options],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                pass_fds=[descriptor],
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
        assert self._child.stdin is not None
        with self._child.stdin as to_server:
            to_server.write(place.secret.hex().encode() + b"\n")
        self._listener.close()
        self._listener = None
        _log.info("%s: started the parameter server at %s, log %s.log", self._who(), place, files)

    def _check_may_return(self, place: Place, error: OSError | EOFError) -> str:
        """No server answers at `place`. Starts it again where that is this worker's part; why it cannot yet.

        Raises Error where it cannot come back.
        """
        if self._fresh and self._child is not None and self._child.poll() is not None:
            text = pathlib.Path(f"{self._files()}.log").read_text(errors="replace")
            raise error_of(
                Status.E_UNREACHABLE,
                f"{self._who()}: the parameter server that it started has ended with exit code "
                f"{self._child.returncode}: {text[-2000:]}",
            )
        if not isinstance(error, ConnectionRefusedError):
            return ""
        if not self._fresh and self._saver is None:
            raise error_of(
                Status.E_UNREACHABLE,
                f"{self._who()}: the parameter server at {place} has ended, and there is no checkpoint to go "
                "on from; start the job again, with checkpoint=DIR to survive this",
            )
        if place == self._own_place and self._listener is None:
            try:
                self._listener = _listen(self._hosts()[1], place.port)
            except OSError as taken:
                return f"it has ended, and cannot begin again there: {taken.strerror}"
        return ""

    def _brings(self, waited: float) -> bool:
        """Whether a server without parameters gets them from this worker. If the lowest one does not bring
        them soon, as it has only just started itself, any other does that took part."""
        if self._fresh:
            return self.worker.rank == 0
        if self._has_left:
            return waited > self._timeout / 2
        members = self.worker.members().members
        ranks = [one.rank for one in members if one.state == MemberState.ACTIVE]
        return waited > self._timeout / 2 or self.worker.rank == min(
            ranks, default=self.worker.rank
        )

    def _to_begin(self) -> tuple[dict[str, Any], list[torch.Tensor]]:
        """What a server begins with: what this process has, or the latest checkpoint."""
        if self._fresh:
            return self._begun, self._parameters
        found = None if self._saver is None else self._saver.load()
        if found is None:
            raise error_of(
                Status.E_UNREACHABLE,
                f"{self._who()}: the parameter server was lost before a checkpoint was complete; start the job again",
            )
        form = {**found.state["form"], "workers": self._others_that_train()}
        return form, [found.state["model"][name] for name in self._names]

    def _others_that_train(self) -> list[int]:
        if self._has_left:  # and is told of members no more
            return []
        members = self.worker.members().members
        return [one.rank for one in members if one.state == MemberState.ACTIVE and one.rank != self.worker.rank]


def _refuse_backup(policy: str) -> None:
    found = re.search(r"\bbackup=([0-9]+)", policy)
    if found and int(found[1]) > 0:
        raise error_of(
            Status.E_INVALID,
            f"{policy} with a parameter server: it cannot take back the updates of backup workers; allowed: "
            'bsp without backup, or the form "averaging"',
        )


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family)


def _shown(place: Place) -> str:
    return json.dumps({**place._asdict(), "secret": place.secret.hex()})


def _read_place(text: str | bytes) -> Place | None:
    """What _shown() gave; None: it is something else."""
    try:
        shown = json.loads(text)
        secret = bytes.fromhex(shown["secret"])
        return Place(shown["host"], shown["port"], secret, shown["identity"])
    except (ValueError, KeyError, TypeError):
        return None


def _given_place(server: str, secret: str | os.PathLike[str] | None) -> Place:
    host, _, port = server.rpartition(":")
    if not host or not port.isdigit():
        raise error_of(Status.E_INVALID, f'server={server!r}; allowed: "host:port"')
    return Place(host.strip("[]"), int(port), load_secret(pathlib.Path(secret or secret_file())))


def _expected_rank(given: int | None) -> int | None:
    """The rank with which this process will join, as the library reads it; None: the daemon gives one."""
    for variable in ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"):
        if given is None and os.environ.get(variable, "").isdigit():
            given = int(os.environ[variable])
    return given


def _launch() -> tuple[str, int]:
    """Name and number of what started this process, as the library reads them; ("", 0): nothing did."""
    text = os.environ.get("SYNCD_LAUNCH", "")
    if text:
        name, _, number = text.rpartition("/")
        return (name, int(number)) if name and number.isdigit() else (text, 0)
    if os.environ.get("TORCHELASTIC_RUN_ID"):
        return os.environ["TORCHELASTIC_RUN_ID"], 0
    restarts = os.environ.get("SLURM_RESTART_COUNT", "0")
    return (os.environ.get("SLURM_JOB_ID", ""), int(restarts) if restarts.isdigit() else 0)
