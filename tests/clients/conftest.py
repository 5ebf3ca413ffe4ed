"""The world of the clients, one for each worker, and the table at the end."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.table import written
from tests.clients.vendor import KEY
from tests.clients.world import World, world

TABLE = Path(__file__).with_name("table.txt")


@pytest.fixture(scope="session")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """The gateway, the upstream behind it, and the loop. Nobody may have told the key."""
    with world(tmp_path_factory.mktemp("gateway")) as made:
        yield made
    assert KEY not in made.gateway.stderr + made.gateway.stdout
    assert made.gateway.process.returncode == 0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every day the streams; bodies take as long again."""
    for item in items:
        if item.name.endswith("-whole]") and item.path.parent == TABLE.parent:
            item.add_marker(pytest.mark.long)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [
        report
        for outcome in ("passed", "failed")
        for report in terminalreporter.stats.get(outcome, ())
        if report.when == "call"
    ]
    cells = [dict(report.user_properties) | {"outcome": report.outcome} for report in reports]
    lines = written([cell for cell in cells if "client" in cell])
    if lines:
        TABLE.write_text("\n".join(lines) + "\n", encoding="utf-8")
        terminalreporter.section("clients through the gateway")
        for line in lines:
            terminalreporter.write_line(line)
