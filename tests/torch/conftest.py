def pytest_configure(config):
    config.addinivalue_line("markers", "small: of which tests/run --all runs")
