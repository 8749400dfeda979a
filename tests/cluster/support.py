"""etcd servers, members of a cluster, and workers that note what was acknowledged to them."""

import ctypes
import datetime
import functools
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time
import typing
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "bindings/python/src"))

import syncd  # noqa: E402
from order import Grant, Push, Seen  # noqa: E402

PATIENCE_S = 240  # for what cannot take long unless something is broken
LEASE_S = int(os.environ.get("SYNCD_FAILOVER_LEASE_S", "5"))
_libc = ctypes.CDLL(None)


def _die_with_parent():
    _libc.prctl(1, signal.SIGKILL)


def program(name):
    return os.path.join(os.environ["SYNCD_TEST_BIN_DIR"], name)


@functools.cache
def etcd_is_old():
    """Whether it is 3.4, which members take only with etcd_old = true."""
    said = subprocess.run(["etcd", "--version"], capture_output=True, text=True, check=True)
    return said.stdout.startswith("etcd Version: 3.4.")


def environment_of_torch():
    """For a process that trains on this machine alone, without what a launcher says."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "bindings/python/src")}
    environment |= {"USE_LIBUV": "0", "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    for variable in ("RANK", "WORLD_SIZE", "SYNCD_ADDR", "SYNCD_JOB", "SYNCD_LAUNCH"):
        environment.pop(variable, None)
    return environment


def free_ports(count):
    probes = [socket.socket() for _ in range(count)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


def free_base_ports(count, width):
    """Ports, each of which begins a row of `width` free ones."""
    bases = []
    while len(bases) < count:
        base = free_ports(1)[0]
        probes = [socket.socket() for _ in range(width)]
        try:
            for i, probe in enumerate(probes):
                probe.bind(("127.0.0.1", base + i))
            if all(abs(base - other) >= width for other in bases):
                bases.append(base)
        except (OSError, OverflowError):
            pass
        finally:
            for probe in probes:
                probe.close()
    return bases


def shard_of(job, shards):
    """As clients and daemons do it; see proto/base/shard.h."""
    mask = (1 << 64) - 1
    value = 0xCBF29CE484222325
    for byte in job.encode():
        value = (value ^ byte) * 0x100000001B3 & mask
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & mask
    value = (value ^ value >> 27) * 0x94D049BB133111EB & mask
    return (value ^ value >> 31) % shards


def shifted(address, by):
    """HOST:PORT, with `by` added to the port."""
    host, port = address.rsplit(":", 1)
    return f"{host}:{int(port) + by}"


def wait_until(holds, what, patience_s=PATIENCE_S):
    end = time.monotonic() + patience_s
    while not (found := holds()):
        assert time.monotonic() < end, f"not within {patience_s} s: {what}"
        time.sleep(0.01)
    return found


class Process:
    """A child whose output goes to a file. Starting it again continues the file."""

    def __init__(self, argv, log, environment=None):
        self.argv = argv
        self.log_file = log
        self.environment = environment
        self.child = None
        self.start()

    def start(self):
        with open(self.log_file, "ab") as log:
            self.child = subprocess.Popen(
                self.argv, env=self.environment, stdout=log, stderr=log, preexec_fn=_die_with_parent
            )

    def log(self):
        return self.log_file.read_text(errors="replace")

    def is_up(self):
        return self.child.poll() is None

    def signal(self, number):
        self.child.send_signal(number)
        if number == signal.SIGSTOP:
            os.waitid(os.P_PID, self.child.pid, os.WSTOPPED)

    def kill(self):
        if self.is_up():
            self.child.kill()
        self.child.wait()


class Place(typing.NamedTuple):
    """Where a program runs and listens."""

    host: str
    within: tuple = ()  # the command that leads there


HERE = Place("127.0.0.1")


class Etcd:
    """One etcd, or several that form a cluster."""

    def __init__(self, directory, places=(HERE,), scheme="http", flags=()):
        ports = free_ports(2 * len(places))
        hosts = [place.host for place in places]
        self.endpoints = [f"{scheme}://{host}:{port}" for host, port in zip(hosts, ports)]
        peers = [f"http://{host}:{port}" for host, port in zip(hosts, ports[len(places) :])]
        names = [f"e{i}" for i in range(len(places))]
        everybody = ",".join(f"{name}={peer}" for name, peer in zip(names, peers))
        self.servers = []
        for place, name, client, peer in zip(places, names, self.endpoints, peers):
            argv = [*place.within, "etcd", "--name", name, "--data-dir", str(directory / name)]
            argv += flags
            argv += ["--listen-client-urls", client, "--advertise-client-urls", client]
            argv += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
            argv += ["--initial-cluster", everybody, "--auto-compaction-retention", "1m"]
            environment = {k: v for k, v in os.environ.items() if not k.startswith("ETCD_")}
            if os.uname().machine not in ("x86_64", "aarch64"):
                environment["ETCD_UNSUPPORTED_ARCH"] = os.uname().machine
            self.servers.append(Process(argv, directory / f"{name}.log", environment))
        for server in self.servers:
            ready = "ready to serve client requests"
            wait_until(lambda s=server: ready in s.log() or not s.is_up(), "etcd is ready")
            assert server.is_up(), server.log()

    def signal(self, number):
        for server in self.servers:
            server.signal(number)

    def stop(self):
        for server in self.servers:
            server.kill()


class Member(Process):
    """The process of one shard on one machine. `address` and `admin` are those of shard 0."""

    def __init__(self, directory, name, etcd, address, admin=None, more="", within=(), shard=0):
        self.directory = directory
        self.name = name
        self.address = shifted(address, shard)
        self.admin = admin and shifted(admin, shard)  # HOST:PORT; None: it shows no pages
        self.store = directory / (f"store.{shard}" if shard else "store")
        endpoints = ", ".join(f'"{endpoint}"' for endpoint in etcd.endpoints)
        self.config = directory / "syncd.toml"
        text = f"""
[listen]
tcp = "{address}"
unix = "off"
# In a namespace its address is not localhost.
insecure = true
auto_create = true
admin = "{admin or 'off'}"
[store]
path = "{directory / "store"}"
[cluster]
name = "lab"
member = "{name}"
etcd = [{endpoints}]
etcd_old = {"true" if etcd_is_old() else "false"}
lease = "{LEASE_S}s"
{more}
"""
        # Another shard's process may be reading it.
        if not self.config.exists():
            self.config.write_text(text)
        argv = [*within, program("syncd"), "--config", str(self.config)]
        environment = {**os.environ, "SYNCD_CLUSTER_SHARD": str(shard)}
        super().__init__(argv, directory / (f"log.{shard}" if shard else "log"), environment)

    def page(self, path):
        """(status, text) of an admin page; (0, "") where nobody listens."""
        try:
            with urllib.request.urlopen(f"http://{self.admin}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def said(self, event, since=0.0):
        """When, on time.monotonic()'s clock, its log said that first since then; None: not yet."""
        offset = time.monotonic() - time.time()
        for line in self.log().splitlines():
            at, _, rest = line.partition(" ")
            if rest.split()[1:2] == [event]:
                moment = datetime.datetime.fromisoformat(at.replace("Z", "+00:00"))
                if moment.timestamp() + offset >= since:
                    return moment.timestamp() + offset
        return None

    def leads(self):
        """Whether it serves: a member that follows takes no connection of workers."""
        host, port = self.address.split(":")
        with socket.socket() as probe:
            probe.settimeout(1)
            return self.is_up() and probe.connect_ex((host, int(port))) == 0


class Cluster:
    """Three machines, by default, with a member for each shard, that is set up and led."""

    def __init__(
        self, directory, etcd=None, places=3 * (HERE,), more="", shards=1, machines=None
    ):
        """`machines`: with so many of them, at first; None: with all."""
        self.directory = directory
        self.etcd = etcd or Etcd(directory)
        self.places = places
        self.more = more
        self.shards = shards
        ports = free_base_ports(2 * len(places), shards)
        self.addresses = [f"{place.host}:{port}" for place, port in zip(places, ports)]
        self.admins = [f"{p.host}:{port}" for p, port in zip(places, ports[len(places) :])]
        self.members = []
        self.start(0)
        for member in self.members:
            member.kill()  # the cluster is not there yet
            member.log_file.unlink()
        self.syncctl(
            "cluster", "init", "--shards", str(shards), "--config", str(self.members[0].config)
        )
        for member in self.members:
            member.start()
        for machine in range(1, len(places) if machines is None else machines):
            self.start(machine)
        for shard in range(shards):
            self.leader(shard)

    def start(self, machine):
        """The processes of one machine, for the first time."""
        directory = self.directory / f"m{machine}"
        directory.mkdir()
        for shard in range(self.shards):
            self.members.append(
                Member(
                    directory,
                    f"m{machine}",
                    self.etcd,
                    self.addresses[machine],
                    self.admins[machine],
                    self.more,
                    self.places[machine].within,
                    shard,
                )
            )

    def address(self):
        return ",".join(self.addresses)

    def of_shard(self, shard):
        return self.members[shard :: self.shards]

    def leader(self, shard=0):
        """Waits until one of the shard's members serves."""

        def look():
            for member in self.of_shard(shard):
                assert member.is_up() or member.child.returncode <= 0, member.log()
            return next((member for member in self.of_shard(shard) if member.leads()), None)

        return wait_until(look, "somebody leads")

    def status(self, *options):
        config = str(self.members[0].config)
        return self.syncctl("cluster", "status", "--config", config, *options)

    def syncctl(self, *arguments):
        done = subprocess.run([program("syncctl"), *arguments], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def pushes(self, job):
        """The records of the job's history."""
        leader = self.leader(shard_of(job, self.shards)).address
        text = self.syncctl("--addr", leader, "history", job, "--kind", "push", "--json")
        return json.loads(text)

    def stop(self):
        for member in self.members:
            member.kill()
        self.etcd.stop()


class Workers:
    """Threads that begin and push, and note what they were granted and told. `rest`: seconds after
    each push."""

    def __init__(self, address, job="job", policy="asp", count=4, rest=0.0):
        self.seen = Seen(job, policy)
        self.rest = rest
        self.granted_at = [0.0] * count
        self.errors = []
        self.stopping = threading.Event()
        self.threads = [
            threading.Thread(target=self._train, args=(address, rank, count), daemon=True)
            for rank in range(count)
        ]
        for thread in self.threads:
            thread.start()

    def _train(self, address, rank, count):
        patience = {"reconnect_timeout": PATIENCE_S, "request_timeout": PATIENCE_S}
        try:
            with syncd.connect(address, **patience) as client:
                options = {"rank": rank, "world_size": count, "name": f"w{rank}"}
                with client.join(self.seen.job, self.seen.policy, **options) as worker:
                    self._step(worker, rank)
                    while not self.stopping.is_set():
                        self._step(worker, rank)
                    self.seen.left[rank] = time.monotonic()
        except Exception as error:  # noqa: BLE001: a test looks at it
            self.errors.append(f"worker {rank}: {error!r}")

    def _step(self, worker, rank):
        asked = time.monotonic()
        step = worker.begin()
        assert not step.stop, step.reason
        self.granted_at[rank] = time.monotonic()
        self.seen.grants.append(Grant(rank, step.iteration, asked, self.granted_at[rank]))
        push = Push(rank, step.iteration, time.monotonic())
        self.seen.pushes.append(push)
        worker.push()
        push.acknowledged = time.monotonic()
        if self.rest:
            time.sleep(self.rest)

    def first_grants(self, since):
        """Seconds from `since` until the first grant after it that the last of the workers got."""
        firsts = [None] * len(self.granted_at)

        def all_there():
            for rank, at in enumerate(self.granted_at):
                if firsts[rank] is None and at > since:
                    firsts[rank] = at
            return self.errors or None not in firsts

        wait_until(all_there, "all are granted again")
        assert not self.errors, self.errors
        return max(firsts) - since

    def longest_pause(self, since=0.0):
        """Seconds between two grants of one worker, of which the second came after `since`."""
        by_rank = {}
        for grant in self.seen.grants:
            at = by_rank.setdefault(grant.rank, [])
            if grant.granted < since:
                at.clear()
            at.append(grant.granted)
        return max(b - a for at in by_rank.values() for a, b in zip(at, at[1:]))

    def finish(self):
        self.stopping.set()
        for thread in self.threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive(), "a worker hangs"
        assert not self.errors, self.errors
        return self.seen
