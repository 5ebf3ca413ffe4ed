"""What holds for a whole session of tests."""

import gc
import os
import sys

import pytest
from hypothesis import Phase, settings

# The same examples in every run, so that a test fails for a change and not by chance.
# `make explore` draws new ones. For mutants a counterexample need not be made smaller to be one.
settings.register_profile("same", derandomize=True, database=None)
settings.register_profile("explore", print_blob=True)
settings.register_profile(
    "mutants", derandomize=True, database=None, phases=(Phase.explicit, Phase.generate)
)
settings.load_profile(os.environ.get("PROPERTIES", "same"))


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
