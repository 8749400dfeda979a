"""connect("auto"): who chooses the daemon, who follows, and what lives on."""

import hashlib
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time

import pytest
from conftest import PATIENCE_S, program

import syncd
from syncd import _auto


def wait_until(what, condition):
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.01)


class Site:
    """This user's directories, and the daemons that were started there."""

    def __init__(self, path, run):
        self.path, self._run = path, run
        (path / "state").mkdir()
        self.variables = {
            "SYNCD_AUTO_DIR": str(path / "a"),
            "XDG_STATE_HOME": str(path / "state"),
            "PATH": os.path.dirname(program("syncd")) + ":/usr/bin:/bin",
        }

    def start(self, *arguments, **variables):
        return self._run("auto_worker.py", *arguments, env={**self.variables, **variables})

    def rank(self, rank, *arguments, world_size=2, **variables):
        of_rank = {"RANK": str(rank), "WORLD_SIZE": str(world_size)}
        return self.start(*arguments, **{**of_rank, **variables})

    def logs(self):
        return sorted((self.path / "state").glob("syncd-auto/*/*/log"))

    def pids(self):
        """Of the daemons that live."""
        found = []
        for log in self.logs():
            for line in log.read_text().splitlines():
                pid = int(line.partition(" pid=")[2] or 0)
                try:
                    command = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
                    state = (
                        pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
                    )
                except OSError:
                    continue
                if str(self.path).encode() in command and state != "Z":
                    found.append(pid)
        return found

    def kill_daemons(self):
        for pid in self.pids():
            os.kill(pid, signal.SIGKILL)
        wait_until("the daemons to end", lambda: not self.pids())

    def published(self):
        (file,) = (self.path / "a").glob("*.daemon")
        return json.loads(file.read_text())["address"]


@pytest.fixture
def site(tmp_path_factory, run):
    made = Site(tmp_path_factory.mktemp("s"), run)
    yield made
    made.kill_daemons()


def chosen(worker):
    """The address, and how it was found."""
    line = worker.wait_for_match("chosen .*").group()
    _, address, how = line.split(" ", 2)
    return address, how


# ---- Which launch, which rank


@pytest.mark.parametrize(
    "variables, place",
    [
        ({}, (0, 1, "this user", False)),
        ({"RANK": "1"}, (1, 2, "this user", False)),
        ({"SYNCD_LAUNCH": "llm/3", "RANK": "0", "WORLD_SIZE": "2"}, (0, 2, "launch llm", False)),
        ({"SYNCD_LAUNCH": "a/b"}, (0, 1, "launch a/b", False)),
        (
            {
                "RANK": "3",
                "WORLD_SIZE": "4",
                "LOCAL_WORLD_SIZE": "4",
                "TORCHELASTIC_RUN_ID": "x",
                "MASTER_ADDR": "node-a",
                "MASTER_PORT": "29500",
            },
            (3, 4, "run x", False),
        ),
        (
            {
                "RANK": "3",
                "WORLD_SIZE": "4",
                "LOCAL_WORLD_SIZE": "2",
                "TORCHELASTIC_RUN_ID": "none",
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": "29500",
            },
            (3, 4, "master 127.0.0.1:29500", True),
        ),
        (
            {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "node-a", "MASTER_PORT": "1"},
            (0, 2, "master node-a:1", True),
        ),
        (
            {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"},
            (0, 2, "master localhost:1", False),
        ),
        (
            {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_PROCID": "1", "SLURM_NTASKS": "2"},
            (1, 2, "slurm 7.0", False),
        ),
        (
            {
                "SLURM_JOB_ID": "7",
                "SLURM_PROCID": "1",
                "SLURM_NTASKS": "2",
                "SLURM_STEP_NUM_NODES": "2",
            },
            (1, 2, "slurm 7.", True),
        ),
        (
            {
                "OMPI_COMM_WORLD_RANK": "1",
                "OMPI_COMM_WORLD_SIZE": "4",
                "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
            },
            (1, 4, "this user", False),
        ),
    ],
)
def test_places(variables, place):
    assert tuple(_auto.place_of(variables)) == place


@pytest.mark.parametrize("variables", [{"RANK": "-1"}, {"RANK": "0", "WORLD_SIZE": "x"}])
def test_wrong_places(variables):
    with pytest.raises(syncd.Invalid, match="allowed: a whole number from"):
        _auto.place_of(variables)


# ---- One machine


def test_rank_0_starts_a_daemon_and_the_others_use_it(site):
    ranks = [site.rank(1, "20"), site.rank(2, "20", world_size=3), site.rank(0, "20", world_size=3)]
    ranks[0].kill()  # it belonged to no whole group
    ranks[0] = site.rank(1, "20", world_size=3)
    found = [chosen(rank) for rank in ranks]
    assert {address for address, _ in found} == {site.published()}
    assert [how.startswith("started (pid") for _, how in found] == [False, False, True]
    for rank in ranks:
        rank.wait_for("done")
    assert len(site.pids()) == 1


def test_what_rank_0_started_survives_its_death(site):
    first = site.start("3")
    first.wait_for("done")
    pids = site.pids()
    assert os.getsid(pids[0]) != os.getsid(first.child.pid)
    assert os.getpgid(pids[0]) != os.getpgid(first.child.pid)
    first.kill()
    second = site.start("3")
    assert chosen(second)[1] == "this launch has used it before"
    second.wait_for("done")
    assert site.pids() == pids


def test_a_publication_that_was_tidied_away_is_not_missed(site):
    first = site.rank(0)
    address, _ = chosen(first)
    for rank in (1, 0):
        for file in (site.path / "a").glob("*.daemon"):
            file.unlink()
        assert chosen(site.rank(rank))[0] == address
    assert len(site.pids()) == 1


def test_what_was_started_ends_without_clients(site):
    worker = site.start("--idle", "5", "3")  # which a worker has to connect on a busy machine
    worker.wait_for("done")
    worker.kill()
    wait_until("the idle daemon to end", lambda: not site.pids())
    assert "stopping idle=5s" in site.logs()[0].read_text()


def test_a_daemon_that_has_ended_is_started_again_on_its_store(site):
    with_daemon = site.start("3")
    with_daemon.wait_for("done")
    address = site.published()
    with_daemon.kill()
    site.kill_daemons()
    again = site.start("3")
    found, how = chosen(again)
    assert found == address and how.startswith("started")
    again.wait_for("done")
    assert " jobs=1 " in site.logs()[0].read_text().rpartition(" recovered ")[2].splitlines()[0]


def test_the_others_take_no_stale_address(site):
    follower = site.rank(1)
    directory = site.path / "a"
    wait_until("the directory", directory.exists)
    name = hashlib.sha256(b"this user").hexdigest()[:16]
    (directory / f"{name}.daemon").write_text(
        json.dumps({"address": f"unix:{directory}/gone", "token": ""})
    )
    chooser = site.rank(0)
    assert chosen(chooser)[0] == chosen(follower)[0] == f"unix:{directory}/{name}.sock"


def test_a_daemon_of_this_machine_is_preferred(site, daemon):
    chooser = site.rank(0, "--local", daemon.address, "3")
    follower = site.rank(1, "3")
    assert chosen(chooser) == (daemon.address, "it runs on this machine")
    assert chosen(follower) == (daemon.address, "rank 0 has published it")
    chooser.wait_for("done")
    assert not site.pids()


def test_two_launches_have_two_daemons_and_a_restart_has_its_own(site):
    ranks = [site.rank(r, "3", SYNCD_LAUNCH=f"{n}/1") for n in "ab" for r in (1, 0)]
    addresses = [chosen(rank)[0] for rank in ranks]
    assert addresses[0] == addresses[1] != addresses[2] == addresses[3]
    for rank in ranks:
        rank.wait_for("done")
        rank.kill()
    again = [site.rank(r, "3", SYNCD_LAUNCH="a/2") for r in (1, 0)]
    assert [chosen(rank)[0] for rank in again] == addresses[:2]
    for rank in again:
        rank.wait_for("done")


def test_many_that_are_alone_start_one(site):
    workers = [site.start() for _ in range(5)]
    found = [chosen(worker) for worker in workers]
    assert len({address for address, _ in found}) == 1
    assert sum(how.startswith("started") for _, how in found) == 1
    assert len(site.pids()) == 1


def test_syncd_addr_wins(site, daemon):
    worker = site.start("3", SYNCD_ADDR=daemon.address)
    worker.wait_for(f'said connect("auto"): the daemon at {daemon.address}, which SYNCD_ADDR names')
    worker.wait_for("done")
    assert not (site.path / "a").exists()


# ---- syncctl, the package's command


def syncctl(site, *arguments, **variables):
    code = (
        "import sys, syncd._programs as programs; from syncd import _auto\n"
        "_auto.local_daemons = lambda: iter([]); programs._PACKAGED = '/nowhere'\n"
        "programs.syncctl()"
    )
    environment = {**os.environ, **site.variables, **variables}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], env=environment, capture_output=True, text=True, timeout=PATIENCE_S
    )


def test_syncctl_asks_the_daemon_that_was_started(site):
    (site.path / "no").mkdir(0o755)
    others = syncctl(site, "jobs", SYNCD_AUTO_DIR=str(site.path / "no"))
    assert others.returncode == 3 and "allowed: a directory of user" in others.stderr
    assert syncctl(site, "jobs").returncode == 3 and not (site.path / "a").exists()
    worker = site.start("3")
    worker.wait_for("done")
    assert json.loads(syncctl(site, "jobs", "--json").stdout)[0]["name"] == "auto"
    # What names a daemon wins, and one that has ended is none.
    assert "/gone" in syncctl(site, "jobs", SYNCD_ADDR="unix:/gone").stderr
    assert "/gone" in syncctl(site, "--addr=unix:/gone", "jobs").stderr
    site.kill_daemons()
    assert syncctl(site, "jobs").returncode == 3


def test_syncctl_names_the_daemons_if_several_were_started(site):
    workers = [site.start("3", SYNCD_LAUNCH=f"{name}/1") for name in "ab"]
    for worker in workers:
        worker.wait_for("done")
    several = syncctl(site, "jobs")
    assert several.returncode == 3
    assert 'connect("auto") has started several; name one in SYNCD_ADDR:' in several.stderr
    lines = re.findall(r"^  (unix:\S+)  \(launch ([ab])\)$", several.stderr, re.MULTILINE)
    assert sorted(launch for _, launch in lines) == ["a", "b"]
    for address, _ in lines:
        assert syncctl(site, "jobs", SYNCD_ADDR=address).returncode == 0
    done = syncctl(site, "--version")  # which needs none
    assert (done.returncode, done.stderr) == (0, "")


def test_the_token_of_a_daemon_that_listens_for_other_machines(here):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"tcp:127.0.0.1:{listener.getsockname()[1]}"
        for launch, token in [("master node-a:29500", "secret"), ("slurm 7.0", "")]:
            directory = _auto.Directory(launch)
            directory.write("toml", f'# {launch}: written by syncd.connect("auto")\n[listen]\n')
            directory.publish(_auto.Published(address, token))
            assert _auto.running() == [(address, directory.file("token") if token else "", launch)]
            os.unlink(directory.file("daemon"))


# ---- What goes wrong


@pytest.fixture
def here(site, monkeypatch):
    """connect("auto") in this process."""
    for name, value in site.variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(_auto, "local_daemons", lambda: iter([]))
    return site


def test_the_others_never_choose(here, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(syncd.Unreachable, match="rank 1 of 2 .* rank 0 has published none"):
        syncd.connect("auto", connect_timeout=0.2)
    (here.path / "a" / (_auto.Directory("this user").name + ".daemon")).write_text(
        json.dumps({"address": f"unix:{here.path}/gone", "token": ""})
    )
    with pytest.raises(syncd.Unreachable, match="rank 0 has published unix:.*gone"):
        syncd.connect("auto", connect_timeout=0.2)
    assert not here.pids()


def test_no_program(here, monkeypatch):
    monkeypatch.setenv("PATH", str(here.path))
    monkeypatch.setattr("syncd._programs._PACKAGED", str(here.path))
    with pytest.raises(
        syncd.Unreachable, match="no daemon answers on this machine.*no program syncd"
    ):
        syncd.connect("auto")


def test_a_daemon_that_cannot_start_says_why(here):
    (here.path / "state/syncd-auto" / socket.gethostname()).mkdir(parents=True)
    name = _auto.Directory("this user").name
    store = here.path / "state/syncd-auto" / socket.gethostname() / name / "store"
    store.parent.mkdir()
    store.write_text("no directory")
    with pytest.raises(
        syncd.Unreachable, match="syncd could not start: store .* is not a directory"
    ):
        syncd.connect("auto")


@pytest.mark.parametrize("mode", [0o755, 0o770])
def test_a_directory_that_others_can_enter(here, mode):
    (here.path / "a").mkdir()
    (here.path / "a").chmod(mode)
    with pytest.raises(syncd.Error, match=f"has mode 0{mode:o}; allowed") as caught:
        syncd.connect("auto")
    assert caught.value.code == syncd.Status.E_AUTH


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_directory_of_another_user(here):
    (here.path / "a").mkdir(0o700)
    os.chown(here.path / "a", 12345, -1)
    with pytest.raises(syncd.Error, match="is of user 12345"):
        syncd.connect("auto")


def test_a_link_is_not_followed(here):
    (here.path / "real").mkdir(0o700)
    (here.path / "a").symlink_to(here.path / "real")
    with pytest.raises(syncd.Error, match="SYNCD_AUTO_DIR"):
        syncd.connect("auto")


def test_a_directory_with_a_long_name(here, monkeypatch):
    monkeypatch.setenv("SYNCD_AUTO_DIR", str(here.path / ("a" * 100)))
    with pytest.raises(syncd.Invalid, match="too long for a Unix socket"):
        syncd.connect("auto")


def test_a_wrong_argument_is_named(here):
    with pytest.raises(syncd.Invalid, match="begin_timeout=-1"):
        syncd.connect("auto", begin_timeout=-1)


def test_stores_of_launches_long_ago_are_removed(here):
    parent = here.path / "state"
    for name, days in (("old", 31), ("new", 1), ("kept", 31)):
        (parent / name).mkdir()
        (parent / name / "log").write_text("")
        then = time.time() - days * 24 * 3600
        os.utime(parent / name / "log", (then, then))
    (parent / "other").mkdir()  # what is no store of ours has no log
    _auto._prune(str(parent), "kept", str(here.path))
    assert sorted(path.name for path in parent.iterdir()) == ["kept", "new", "other"]


def test_who_listens_at_a_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        assert _auto._owner_of_port(port) is None
        listener.listen()
        assert _auto._owner_of_port(port) == os.geteuid()
        assert _auto._listens(f"tcp:127.0.0.1:{port}")
    assert not _auto._listens(f"tcp:127.0.0.1:{port}")


# ---- Several machines: torch's store at MASTER_ADDR


def test_without_torch_several_machines_take_an_address(here, monkeypatch):
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "node-a"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(syncd.Invalid, match="over several machines.*MASTER_PORT.*SYNCD_ADDR"):
        syncd.connect("auto")


@pytest.mark.parametrize(
    "master, resolved, host",
    [
        ("127.0.0.1", "127.0.0.1", ("127.0.0.1", "127.0.0.1")),
        ("localhost", "127.0.0.1", ("127.0.0.1", "127.0.0.1")),
        ("node-a", "127.0.1.1", ("0.0.0.0", "node-a")),
        ("::1", "::1", ("::1", "::1")),
    ],
)
def test_where_a_daemon_for_other_machines_listens(master, resolved, host, monkeypatch):
    family = socket.AF_INET6 if ":" in resolved else socket.AF_INET
    found = [(family, socket.SOCK_STREAM, 6, "", (resolved, 0))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: found)
    assert tuple(_auto.host_for_others(master)) == host


@pytest.mark.slow
def test_several_machines_share_a_daemon_by_torchs_store(site):
    pytest.importorskip("torch")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    variables = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "LOCAL_WORLD_SIZE": "1"}
    second = {**variables, "SYNCD_AUTO_DIR": str(site.path / "b")}  # as another machine has
    ranks = [site.rank(1, "--torch", "5", **second), site.rank(0, "--torch", "5", **variables)]
    found = [chosen(rank) for rank in ranks]
    assert found[0][0] == found[1][0] and found[0][0].startswith("tcp:127.0.0.1:")
    for rank in ranks:
        rank.wait_for("sum 3")  # init_process_group() came after connect("auto")
        rank.wait_for("done")
    with pytest.raises(syncd.Error) as caught:
        syncd.connect(found[0][0])
    assert caught.value.code == syncd.Status.E_AUTH
