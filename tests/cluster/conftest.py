def pytest_configure(config):
    config.addinivalue_line("markers", "small: what tests/run --all runs")
