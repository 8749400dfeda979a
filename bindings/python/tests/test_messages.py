"""Messages of the C library speak of this package's names, and say what to do."""

import re

import pytest

import syncd
from syncd.errors import pythonic

OF_C = re.compile(r"syncd_[a-z]+|SYNCD_(?!E_|ADDR|JOB|LAUNCH|[A-Z]+_TIMEOUT_SEC)|NULL|_ms\b|struct")


@pytest.mark.parametrize(
    "of_c, of_python",
    [
        ("syncd_join_options.job is 'a b'; allowed: 1", "job='a b'; allowed: 1"),
        ("syncd_join_options.rank is -5; allowed", "rank=-5; allowed"),
        ("syncd_join_options.policy has 600 bytes", "policy has 600 bytes"),
        ("syncd_join_options.name is empty; or NULL", "name is empty; or None"),
        ("syncd_client_options.addresses: address 'x': y", "address: address 'x': y"),
        ("syncd_join_options.data_size is 2000", "len(data)=2000"),
        ("syncd_worker_set_data: data_size is 1025", "set_data: len(data)=1025"),
        ("syncd_server_options.unix_path: listen.unix", "unix: listen.unix"),
        ("syncd_join_options.exit_grace_ms is 5", "exit_grace=5"),
        ("syncd_worker_phase: the name", "phase: the name"),
        ("syncd_leave_as: kind 7", "leave: kind 7"),
        ("call syncd_worker_arrive()", "call arrive()"),
        ("syncd_begin() comes first", "begin() comes first"),
        ("job is 'syncd_begin NULL'; syncd_begin", "job is 'syncd_begin NULL'; begin"),
        ("the job's syncd_push and the worker's", "the job's push and the worker's"),
        (
            "/run/syncd/syncd.sock: syncd_other NULLABLE",
            "/run/syncd/syncd.sock: syncd_other NULLABLE",
        ),
    ],
)
def test_names(of_c, of_python):
    assert pythonic(of_c) == of_python


def refusals(daemon):
    """Every refusal of the library's own that a caller of this package can get, as (name, call)."""

    def connect(**options):
        return lambda: syncd.connect(**{"address": daemon.address, **options})

    yield "address", connect(address="host:99999")
    yield "address list", connect(address=["localhost", ""])
    yield "name", connect(name="n" * 200)
    yield "token_file", connect(token_file="/nowhere/token")
    yield "ca_file", connect(address="tls:localhost:1", ca_file="/nowhere/ca")
    yield "certificate_file", connect(address="tls:localhost:1", certificate_file="/nowhere/c")
    client = syncd.connect(daemon.address)
    wrong_joins = [
        {"job": "a b"},
        {"policy": "p" * 600},
        {"policy": "wonder"},
        {"policy": "bsp:zero"},
        {"name": ""},
        {"name": "n" * 200},
        {"name": "a\nb"},
        {"host": "h" * 300},
        {"host": "a\nb"},
        {"data": b"d" * 2000},
        {"launch": "l" * 100},
        {"launch": "a\nb"},
        {"launch": ("", 3)},
        {"exit_grace": 1e6},
        {"hang_after": 1e9},
        {"world_size": 2**31},
        {"join_timeout": -1},
        {"resume": "never"},
    ]
    for options in wrong_joins:
        yield f"join {options}"[:60], lambda o=options: client.join(
            **{"job": "job", "rank": 0, **o}
        )
    worker = client.join("job", "asp", rank=0, checkpoints=True)
    yield "push", lambda: worker.push(iteration=7)
    yield "push first", lambda: worker.push(iteration=0)
    yield "phase", lambda: worker.phase("n" * 200, 1.0)
    yield "phase lease", lambda: worker.phase("eval", 1e9)
    yield "targets", lambda: worker.targets()
    yield "collect", lambda: worker.collect(0)
    yield "consumed", lambda: worker.consumed(0)
    yield "view", lambda: worker.view()
    yield "mark", lambda: worker.mark()
    yield "poll", lambda: worker.poll()
    yield "restarted", lambda: worker.restarted()
    yield "checkpointed", lambda: worker.checkpointed(9, "/x", shard=3, shards=2)
    yield "request", lambda: worker.request_checkpoint("r" * 5000)
    yield "begin data", lambda: worker.begin(data=b"d" * 2000)
    yield "latest", lambda: client.latest_checkpoint("no such")
    yield "latest name", lambda: client.latest_checkpoint("a b")
    worker.begin()
    yield "begin twice", lambda: worker.begin()
    yield "arrive", lambda: worker.arrive()
    worker.leave()
    yield "left", lambda: worker.begin()


def test_no_refusal_speaks_c(daemon):
    told = {}
    for name, call in refusals(daemon):
        try:
            call()
        except syncd.Error as error:
            told[name] = error.message
    found = {name: text for name, text in told.items() if OF_C.search(text)}
    assert found == {}
    assert len(told) >= 35, sorted(told)


def test_refusals_name_the_argument(daemon):
    with syncd.connect(daemon.address) as client:
        for options, message in [
            ({"job": "a b"}, "job='a b'; allowed"),
            ({"policy": "p" * 600}, "policy has 600 bytes"),
            ({"name": ""}, "name is empty; allowed: 1 to 128 bytes, or None"),
            ({"data": b"d" * 2000}, r"len\(data\)=2000"),
            ({"launch": ("", 3)}, r"launch\[1\]=3, but"),
            ({"exit_grace": 1e6}, "exit_grace=1000000.0; allowed"),
        ]:
            with pytest.raises(syncd.Invalid, match="^SYNCD_E_INVALID: " + message):
                client.join(**{"job": "job", **options})


@pytest.mark.parametrize(
    "policy, meant", [("spp:3", "ssp:3"), ("ssp3", "ssp:S"), ("Elastic-BSP:8", "elastic_bsp:8")]
)
def test_an_unknown_policy_is_corrected(daemon, policy, meant):
    with syncd.connect(daemon.address) as client:
        message = f"{policy}' is unknown .did you mean {meant}.."
        with pytest.raises(syncd.Invalid, match=message):
            client.join("job", policy)


def test_no_daemon_says_how_to_start_one(tmp_path):
    with pytest.raises(syncd.Unreachable) as caught:
        syncd.connect(f"unix:{tmp_path}/none", connect_timeout=0.05)
    assert caught.value.message.endswith(
        '. Start a daemon with `syncd` (or `python -m syncd`), or use syncd.connect("auto")'
    )
    assert caught.value.retriable
