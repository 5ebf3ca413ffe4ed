"""What holds for a whole session of tests."""

import gc
import os
import signal
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol
from hypothesis import HealthCheck, Phase, settings

# The same examples in every run, so that a test fails for a change and not by chance.
# `make explore` draws new ones. For mutants a counterexample need not be made smaller to be one.
# A test that asks for no number of examples has a fifth of them in `make test`, as the others
# (strategies.py).
# A busy machine is no defect: nothing is timed.
settings.register_profile(
    "same",
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    max_examples=100 if os.environ.get("THOROUGH") else 20,
)
settings.register_profile("explore", print_blob=True)
settings.register_profile(
    "mutants", derandomize=True, database=None, phases=(Phase.explicit, Phase.generate)
)
settings.load_profile(os.environ.get("PROPERTIES", "same"))


def pytest_configure() -> None:
    """Reading some hundred modules makes objects that stay: to look at them again and again takes
    a third of the time."""
    gc.disable()
    # Under nohup it is ignored, by the gateways of the tests as well, and they reload nothing.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """The workers import the same files, but each begins elsewhere: after a change, or in a fresh
    clone, a file is then compiled by one of them and read by the others."""
    config, worker = session.config, os.environ.get("PYTEST_XDIST_WORKER", "")
    whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    if not worker or not whole or config.option.ignore_glob:
        return
    files = sorted(Path(__file__).parent.rglob("test_*.py"))
    share = len(files) // int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    begin = share * int(worker.removeprefix("gw"))
    for path in files[begin:] + files[:begin]:
        # What cannot be imported is reported by the collection, which tries again.
        with suppress(Exception, pytest.skip.Exception):
            import_module(".".join(path.relative_to(config.rootpath).with_suffix("").parts))


def pytest_collection_finish() -> None:
    """What reading left behind is too little to look for: that would take a second."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """A worker reports a test that passed once, not also that it starts, its setup, its teardown
    and that it is over: to send and count 140,000 messages takes longer than most of the tests."""
    if not hasattr(item.config, "workerinput"):
        return None
    for report in runtestprotocol(item, log=False, nextitem=nextitem):
        if report.when == "call" or not report.passed:
            item.ihook.pytest_runtest_logreport(report=report)
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
