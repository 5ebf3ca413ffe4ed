"""What holds for a whole session of tests."""

import gc
import os
import sys

import pytest
from hypothesis import settings

# The same examples in every run, so that a test fails for a change and not by chance. `make explore`
# draws new ones.
settings.register_profile("same", derandomize=True, database=None)
settings.register_profile("explore", print_blob=True)
settings.load_profile("explore" if os.environ.get("EXPLORE") else "same")


def pytest_configure() -> None:
    """Reading some hundred modules makes objects that stay: to look at them again and again takes
    a third of the time."""
    gc.disable()


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """A test that failed leaves its connections open: they must not trouble another one."""
    raw = sys.modules.get("tests.raw_http")
    for client in () if raw is None else list(raw.Client.OPEN):
        client.close()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    """A worker may be gone before its servers are."""
    stores = sys.modules.get("tests.stores")
    if stores is not None and stores.postgres.cache_info().currsize:
        stores.postgres().cleanup()
