"""A daemon of its own for each test, and worker processes. All end with the test, however it
ends."""

import ctypes
import os
import pathlib
import re
import select
import signal
import subprocess
import sys
import time

import pytest

HERE = pathlib.Path(__file__).parent
# For what cannot take long unless something is broken; nothing else depends on time.
PATIENCE_S = 60
_libc = ctypes.CDLL(None)

for _variable in [name for name in os.environ if name.startswith(("SLURM_", "OMPI_", "TORCHELASTIC_"))] + [
    "RANK",
    "WORLD_SIZE",
    "SYNCD_JOB",
    "SYNCD_ADDR",
    "SYNCD_TOKEN_FILE",
    "SYNCD_CA_FILE",
    "SYNCD_CERTIFICATE_FILE",
    "SYNCD_KEY_FILE",
    "SYNCD_SERVER_NAME",
    "SYNCD_BEGIN_TIMEOUT_SEC",
    "SYNCD_REQUEST_TIMEOUT_SEC",
    "SYNCD_CONNECT_TIMEOUT_SEC",
    "SYNCD_RECONNECT_TIMEOUT_SEC",
    "SYNCD_JOIN_TIMEOUT_SEC",
    "SYNCD_LAUNCH",
    "SYNCD_AUTO_DIR",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
]:
    os.environ.pop(_variable, None)


def _die_with_parent():
    _libc.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


class Process:
    """A child whose standard output is read line by line."""

    def __init__(self, *argv, env=None):
        self.child = subprocess.Popen(
            [str(word) for word in argv],
            env={**os.environ, **(env or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=_die_with_parent,
        )
        self._rest = b""

    def wait_for(self, line):
        """Reads until this line has come."""
        self.wait_for_match(re.escape(line))

    def wait_for_match(self, pattern):
        """Reads until a line has come that matches as a whole; the match."""
        end = time.monotonic() + PATIENCE_S
        seen = []
        while not (seen and (found := re.fullmatch(pattern, seen[-1]))):
            while b"\n" not in self._rest:
                ready, _, _ = select.select(
                    [self.child.stdout], [], [], max(0, end - time.monotonic())
                )
                data = os.read(self.child.stdout.fileno(), 65536) if ready else b""
                if not data:
                    self.child.kill()
                    error = self.child.stderr.read().decode()
                    raise AssertionError(f"no line {pattern!r}, but {seen}; {error}")
                self._rest += data
            first, self._rest = self._rest.split(b"\n", 1)
            seen.append(first.decode())
        return found

    def finish(self):
        """Waits for its end; its exit code, the rest of its output and what it said in error."""
        out, err = self.child.communicate(timeout=PATIENCE_S)
        return self.child.returncode, (self._rest + out).decode(), err.decode()

    def kill(self):
        if self.child.poll() is None:
            self.child.kill()
        self.child.wait()


class Daemon:
    def __init__(self, directory, config=""):
        self.directory = directory
        self.address = f"unix:{directory}/s"
        self._ready = directory / "ready"
        self._argv = [program("syncd"), "--store", "memory", "--unix", f"{directory}/s"]
        self._argv += ["--tcp", "off", "--ready-file", str(self._ready)]
        if config:
            (directory / "syncd.toml").write_text(config)
            self._argv += ["--config", str(directory / "syncd.toml")]
        with open(directory / "log", "ab") as log:
            self.child = subprocess.Popen(self._argv, stderr=log, preexec_fn=_die_with_parent)
        end = time.monotonic() + PATIENCE_S
        while not (self._ready.exists() and self._ready.stat().st_size):
            log_text = (directory / "log").read_text()
            assert self.child.poll() is None and time.monotonic() < end, log_text
            time.sleep(0.01)

    def syncctl(self, *arguments):
        argv = [program("syncctl"), "--addr", self.address, *arguments]
        return subprocess.run(argv, check=True, capture_output=True, text=True).stdout

    def stop_answering(self):
        """Until SIGCONT."""
        self.child.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.child.pid, os.WSTOPPED)

    def stop(self):
        self.child.terminate()
        try:
            assert self.child.wait(PATIENCE_S) == 0, (self.directory / "log").read_text()
        finally:
            if self.child.poll() is None:
                self.child.kill()


def program(name):
    """One of the project's programs; SYNCD_TEST_BIN_DIR says where they lie."""
    return os.path.join(os.environ["SYNCD_TEST_BIN_DIR"], name)


@pytest.fixture
def start_daemon(tmp_path_factory):
    started = []

    def start(config=""):
        started.append(Daemon(tmp_path_factory.mktemp("d"), config))
        return started[-1]

    yield start
    for daemon in started:
        daemon.stop()


@pytest.fixture
def daemon(start_daemon):
    return start_daemon()


@pytest.fixture
def stopped(daemon):
    """A daemon for a test that stops its process: then it answers no more."""
    yield daemon
    daemon.child.send_signal(signal.SIGCONT)


@pytest.fixture
def run(request):
    """Starts a program of Python's: run("file.py", arguments..., env={...})."""
    started = []

    def start(script, *arguments, env=None):
        path = HERE / script
        started.append(Process(sys.executable, "-u", path, *arguments, env=env))
        return started[-1]

    yield start
    for process in started:
        process.kill()
