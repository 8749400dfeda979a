"""etcd with TLS and users, of whom a member's has no right beyond its cluster's prefix."""

import os
import shutil
import subprocess

import pytest
from support import HERE, LEASE_S, Cluster, Etcd, Member, Workers, free_ports, program, wait_until
from test_failover import check, dies_and_returns, small

PREFIX = "/syncd/lab/v1/"
USERS = {"lab": "readwrite", "reader": "read", "stranger": None}  # and what they may do there


class GuardedEtcd(Etcd):
    """`way`: how clients show who they are: by a "password" or a "certificate"."""

    def __init__(self, directory, way):
        self.way = way
        self.directory = directory / "tls"
        first, *others = USERS
        syncctl = [program("syncctl"), "tls"]
        for words in [("init", "--host", "127.0.0.1", "--client", first, self.directory)] + [
            ("issue", self.directory, user) for user in others
        ]:
            subprocess.run([*syncctl, *words], check=True, capture_output=True)
        # The cost is etcd's least: each member's first call is a password.
        flags = ["--bcrypt-cost", "4"]
        flags += ["--cert-file", self.file("server.crt"), "--key-file", self.file("server.key")]
        if way == "certificate":
            flags += ["--client-cert-auth", "--trusted-ca-file", self.file("ca.crt")]
        super().__init__(directory, scheme="https", flags=flags)
        self.etcdctl("user", "add", "root:r")
        self.etcdctl("user", "grant-role", "root", "root")
        for user, right in USERS.items():
            self.write_password(user, user)
            self.etcdctl("user", "add", *self.account(user))
            if right:
                self.etcdctl("role", "add", user)
                self.etcdctl("role", "grant-permission", "--prefix", user, right, PREFIX)
                self.etcdctl("user", "grant-role", user, user)
        self.etcdctl("auth", "enable")

    def account(self, user):
        return [f"{user}:{user}"] if self.way == "password" else [user, "--no-password"]

    def file(self, name):
        return str(self.directory / name)

    def write_password(self, name, password):
        path = self.directory / f"{name}.password"
        path.touch(mode=0o600)
        path.write_text(f"{password}\n")

    def etcdctl(self, *words):
        environment = {k: v for k, v in os.environ.items() if not k.startswith("ETCDCTL_")}
        argv = ["etcdctl", "--endpoints", self.endpoints[0], "--cacert", self.file("ca.crt")]
        argv += ["--cert", self.file("lab.crt"), "--key", self.file("lab.key")]
        argv += ["--command-timeout", "60s"]
        done = subprocess.run(
            [*argv, *words], env={**environment, "ETCDCTL_API": "3"}, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr

    def settings(self, user, password=None):
        """For [cluster]."""
        lines = [f'ca = "{self.file("ca.crt")}"']
        if self.way == "password":
            path = self.file(f"{password or user}.password")
            lines += [f'user = "{user}"', f'password_file = "{path}"']
        else:
            lines += [f'certificate = "{self.file(user)}.crt"', f'key = "{self.file(user)}.key"']
        return "\n".join(lines)


@pytest.fixture(params=["password", "certificate"])
def etcd(tmp_path, request):
    if shutil.which("etcdctl") is None:
        pytest.skip("there is no etcdctl: packaging/install_packages cluster-test")
    made = GuardedEtcd(tmp_path, request.param)
    yield made
    made.stop()


def test_a_users_right_to_its_prefix_is_enough(etcd, tmp_path):
    cluster = Cluster(tmp_path, etcd, more=etcd.settings("lab"))
    try:
        workers = Workers(cluster.address())
        dies_and_returns(cluster, workers)
        check(cluster, workers.finish())
    finally:
        cluster.stop()


@pytest.fixture
def start(etcd, tmp_path):
    """start(what it has in [cluster]) gives a second member."""
    cluster = Cluster(tmp_path, etcd, [HERE], etcd.settings("lab"))
    started = []

    def make(more):
        (tmp_path / "m1").mkdir()
        address, admin = (f"127.0.0.1:{port}" for port in free_ports(2))
        started.append(Member(tmp_path / "m1", "m1", etcd, address, admin, more))
        return started[-1]

    yield make
    for member in started:
        member.kill()
    cluster.stop()


def waits_saying(member, *texts):
    wait_until(lambda: all(text in member.log() for text in texts), f"it says {texts}")
    assert member.is_up() and "cluster_waits" in member.log()
    assert member.page("/readyz")[0] == 503


@small
@pytest.mark.parametrize("etcd", ["password"], indirect=True)
def test_a_wrong_password_is_named_and_a_new_one_read(etcd, start):
    etcd.write_password("wrong", "wrong")
    member = start(etcd.settings("lab", "wrong"))
    waits_saying(member, "user 'lab'", "authentication failed")
    etcd.write_password("wrong", "lab")
    wait_until(lambda: member.page("/readyz")[0] == 200, "it follows")


@small
@pytest.mark.parametrize("etcd", ["certificate"], indirect=True)
def test_a_certificate_of_another_authority_is_named(etcd, start):
    more = etcd.settings("lab").replace("ca = ", "#")  # the system's, then
    waits_saying(start(more), "certificate verify failed")


@small
def test_a_user_without_rights_is_refused(etcd, start):
    member = start(etcd.settings("stranger"))
    wait_until(lambda: not member.is_up(), "it ends")
    assert member.child.returncode == 3, member.log()
    assert "etcd refuses to let this member read: " in member.log()
    assert "permission denied" in member.log()


# It cannot register, so that it never leads.
def test_a_user_who_may_only_read_is_refused(etcd, start):
    member = start(etcd.settings("reader"))
    wait_until(lambda: not member.is_up(), "it ends")
    assert "etcd refuses to let this member write /syncd/" in member.log()
    assert "permission denied" in member.log() and member.child.returncode == 3
