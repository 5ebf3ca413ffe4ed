"""What holds for a whole session of tests."""

import gc
import sys

import pytest


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
