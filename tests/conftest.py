"""What holds for a whole session of tests."""

import gc
import os
import sys

import pytest
from _pytest.runner import runtestprotocol
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


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """A worker reports a test that passed once, not also its setup and its teardown: to send and
    count 90,000 reports takes longer than most of the tests."""
    if not hasattr(item.config, "workerinput"):
        return None
    hook = item.ihook
    hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in runtestprotocol(item, log=False, nextitem=nextitem):
        if report.when == "call" or not report.passed:
            hook.pytest_runtest_logreport(report=report)
    hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


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
