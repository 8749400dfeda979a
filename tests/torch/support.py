"""A daemon, agents of torchrun, and what their workers say, for the tests in this folder."""

import contextlib
import ctypes
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

import torch

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[1]
PATIENCE_S = 240  # for what cannot take long unless something is broken
_libc = ctypes.CDLL(None)


TORCH = tuple(int(part) for part in torch.__version__.split(".")[:2])
HAS_ENTRY_POINTS = TORCH >= (2, 5)


def _die_with_parent():
    _libc.prctl(1, signal.SIGKILL)


def program(name):
    return os.path.join(os.environ["SYNCD_TEST_BIN_DIR"], name)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until(holds, what, patience_s=PATIENCE_S):
    end = time.monotonic() + patience_s
    while not (found := holds()):
        assert time.monotonic() < end, f"not within {patience_s} s: {what}"
        time.sleep(0.02)
    return found


class Daemon:
    """With its store on disk, so that it can be killed and started again."""

    def __init__(self, directory, mode="durable"):
        self.directory = directory
        self.mode = mode
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.child = None
        self.start()

    def start(self):
        ready = self.directory / "ready"
        ready.unlink(missing_ok=True)
        argv = [program("syncd"), "--store", f"{self.directory}/data", "--unix", "off"]
        argv += ["--tcp", self.address, "--ready-file", str(ready), "--admin", "off", "--mode", self.mode]
        with open(self.directory / "syncd.log", "ab") as log:
            self.child = subprocess.Popen(argv, stderr=log, preexec_fn=_die_with_parent)
        wait_until(
            lambda: self.child.poll() is not None or (ready.exists() and ready.stat().st_size),
            "the daemon is ready",
        )
        assert self.child.poll() is None, (self.directory / "syncd.log").read_text()

    def log(self):
        return (self.directory / "syncd.log").read_text()

    def kill(self):
        self.child.kill()
        self.child.wait()

    def syncctl(self, *arguments):
        argv = [program("syncctl"), "--addr", self.address, *arguments]
        return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


def site(directory):
    """A folder with the package as an installation has it, with what names its entry point."""
    made = directory / "site"
    if not made.exists():
        info = made / "syncd-0.1.0.dist-info"
        info.mkdir(parents=True)
        (made / "syncd").symlink_to(ROOT / "bindings/python/src/syncd")
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: syncd\nVersion: 0.1.0\n")
        points = (ROOT / "packaging/cpack/entry_points.txt").read_text()
        (info / "entry_points.txt").write_text(points)
    return made


class Agent:
    """One torchrun. Its workers are its children, and die with kill_all()."""

    def __init__(self, name, argv, log):
        self.name = name
        self.log = log
        environment = {
            **os.environ,
            "GLOO_SOCKET_IFNAME": "lo",
            "OMP_NUM_THREADS": "1",
            "PYTHONUNBUFFERED": "1",
            "TORCHELASTIC_ERROR_FILE": f"{log}.error",
            "PYTHONPATH": str(site(log.parent)),
        }
        for variable in ("RANK", "WORLD_SIZE", "SYNCD_ADDR", "SYNCD_JOB", "SYNCD_LAUNCH"):
            environment.pop(variable, None)
        with open(log, "ab") as out:
            self.child = subprocess.Popen(
                argv, env=environment, stdout=out, stderr=out, preexec_fn=_die_with_parent
            )

    def workers(self):
        found = subprocess.run(
            ["ps", "-o", "pid=", "--ppid", str(self.child.pid)], capture_output=True, text=True
        ).stdout.split()
        return [int(pid) for pid in found]

    def kill_all(self):
        """SIGKILL of the agent and its workers, as when a machine dies."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.child.pid, signal.SIGSTOP)
        for pid in self.workers():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.child.kill()
        self.child.wait()

    def wait(self, patience_s=PATIENCE_S):
        try:
            return self.child.wait(patience_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} has not ended: {self.text()[-3000:]}") from None

    def text(self):
        return self.log.read_text(errors="replace")


class Run:
    """Agents of one run id."""

    def __init__(self, directory, daemon, nodes="2:4", backend="syncd", restarts=20, conf="", name="run"):
        self.directory = directory
        self.daemon = daemon
        self.events_file = directory / f"events-{backend}-{name}"
        self.agents = []
        self.backend = backend
        self.launcher = None
        self.port = free_port()
        endpoint = daemon.address if backend == "syncd" else f"127.0.0.1:{self.port}"
        self.options = [
            f"--nnodes={nodes}",
            "--nproc_per_node=1",
            f"--rdzv_backend={backend}",
            f"--rdzv_endpoint={endpoint}",
            f"--rdzv_id={name}",
            f"--max_restarts={restarts}",
            "--monitor_interval=0.1",
        ]
        if conf:
            self.options.append(f"--rdzv_conf={conf}")
        self.script = []
        self.train()

    def train(self, iterations=60, *more):
        """What agents that are started after this run. The default: 3 s."""
        self.script = [str(HERE / "train.py"), str(self.events_file), str(iterations), "0.05", *more]

    def resume(self, iterations, directory, stagger_s, crashes, *form):
        """Likewise, with checkpoints."""
        words = (self.events_file, iterations, directory, stagger_s, crashes, *form)
        self.script = [str(HERE / "resume.py"), *map(str, words)]

    def form(self, policy, iterations, directory, stagger_s, crashes):
        """Likewise, by syncd.torch."""
        words = (self.events_file, policy, iterations, directory, stagger_s, crashes)
        self.script = [str(HERE / "forms.py"), *map(str, words)]

    def start(self, name, more=()):
        """By torch's own launcher where it finds the backend, else by ours: torch 1.13's own does not
        start at all under Python 3.11."""
        launcher = self.launcher or ("torch.distributed.run" if HAS_ENTRY_POINTS else "syncd.torchrun")
        argv = [sys.executable, "-m", launcher, *self.options, *more, *self.script]
        agent = Agent(name, argv, self.directory / f"{self.backend}-{name}.log")
        self.agents.append(agent)
        return agent

    def events(self, what=None, **fields):
        """What workers said, in order."""
        if not self.events_file.exists():
            return []
        lines = self.events_file.read_text().splitlines()
        found = [dict(word.split("=", 1) for word in line.split()) for line in lines]
        return [
            one
            for one in found
            if (what is None or one["what"] == what)
            and all(one[key] == str(value) for key, value in fields.items())
        ]

    def wait_for(self, count, what, since=0.0, **fields):
        def enough():
            found = [one for one in self.events(what, **fields) if float(one["t"]) >= since]
            return found if len(found) >= count else None

        try:
            return wait_until(enough, f"{count} times {what} {fields}")
        except AssertionError as error:
            logs = "".join(f"\n== {one.name}\n{one.text()[-2500:]}" for one in self.agents)
            raise AssertionError(f"{error}{logs}\n{self.events()}") from None

    def end(self):
        for agent in self.agents:
            agent.kill_all()
