import pytest

from support import Daemon, Run


def pytest_configure(config):
    config.addinivalue_line("markers", "small: of which tests/run --all runs")


@pytest.fixture
def daemon(tmp_path):
    made = Daemon(tmp_path)
    yield made
    made.kill()


@pytest.fixture
def start(tmp_path, daemon):
    """start(nodes, ...) gives a Run, which ends with the test."""
    runs = []

    def make(nodes="2:4", **options):
        runs.append(Run(tmp_path, daemon, nodes, **options))
        return runs[-1]

    yield make
    for run in runs:
        run.end()
