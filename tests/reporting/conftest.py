import pytest

from tests.reporting.chromium import browser


@pytest.fixture(scope="session")
def chromium():
    """One browser; each test has a tab of its own."""
    with browser() as one:
        yield one
