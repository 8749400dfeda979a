import pathlib
import shutil
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "bindings/python/src"))


def pytest_configure(config):
    config.addinivalue_line("markers", "small: what tests/run --all runs")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item):
    outcome = yield
    if outcome.get_result().when == "call":
        item.has_passed = outcome.get_result().passed


@pytest.fixture(autouse=True)
def leaves_no_data(request, tmp_path):
    """A server of etcd begins with 128 MB, and /tmp may lie in memory."""
    yield
    if getattr(request.node, "has_passed", False):
        shutil.rmtree(tmp_path, ignore_errors=True)
