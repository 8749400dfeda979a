"""Hop with several threads and with one that waits."""

import threading

import pytest

import syncd


def test_hop_on_a_ring(daemon):
    workers, iterations = 4, 40
    seen, errors = [{} for _ in range(workers)], []
    all_done = threading.Barrier(workers)  # one that leaves is not waited for by its neighbours

    def loop(client, rank):
        try:
            with client.join("job", "hop:ring", rank=rank, world_size=workers) as worker:
                for step in worker.steps(iterations):
                    targets = worker.targets()
                    worker.push()
                    updates = worker.collect()
                    worker.consumed(timeout=0 if step.iteration % 2 else None)
                    seen[rank][step.iteration] = (targets, updates)
                all_done.wait()
        except Exception as error:
            errors.append(error)
            all_done.abort()

    with syncd.connect(daemon.address) as client:
        threads = [threading.Thread(target=loop, args=(client, r)) for r in range(workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not errors
    for rank in range(workers):
        neighbours = sorted({(rank - 1) % workers, (rank + 1) % workers})
        assert sorted(seen[rank]) == list(range(iterations))
        for iteration, (targets, updates) in seen[rank].items():
            assert targets == neighbours
            assert sorted(update.rank for update in updates) == sorted([rank, *neighbours])
            assert {update.iteration for update in updates} == {iteration}
            assert sum(update.weight for update in updates) == pytest.approx(1)


def test_a_collect_that_waits_names_the_neighbour(daemon):
    with syncd.connect(daemon.address) as client:
        pair = [client.join("job", "hop:ring", rank=r, world_size=2) for r in range(2)]
        with pytest.raises(syncd.Timeout):
            pair[0].begin(timeout=0)
        for worker in reversed(pair):
            worker.begin()
        pair[0].targets()
        with pytest.raises(syncd.Error) as caught:
            pair[0].collect()
        assert caught.value.code == syncd.Status.E_STATE
        pair[0].push()
        with pytest.raises(syncd.Timeout) as caught:
            pair[0].collect(timeout=0)
        assert "worker 1" in caught.value.missing
        pair[1].targets()
        pair[1].push()
        assert len(pair[0].collect()) == 2


def test_more_neighbours_than_room(daemon, monkeypatch):
    with syncd.connect(daemon.address) as client:
        pair = [client.join("job", "hop:ring", rank=r, world_size=2) for r in range(2)]
        with pytest.raises(syncd.Timeout):
            pair[0].begin(timeout=0)
        for worker in reversed(pair):
            worker.begin()
            worker.targets()
            worker.push()
        pair[0]._world_size = 1  # room for one of two
        assert [update.rank for update in pair[0].collect()] == [0, 1]


def test_a_parameter_server_policy_has_no_targets(daemon):
    with syncd.connect(daemon.address) as client, client.join("job", "asp", rank=0) as worker:
        worker.begin()
        with pytest.raises(syncd.Unsupported):
            worker.targets()
