"""One upstream for all tests of a worker."""

from collections.abc import Iterator

import pytest

from tests.faults.upstream import Upstream, upstream


@pytest.fixture(scope="session")
def staged() -> Iterator[Upstream]:
    with upstream() as made:
        yield made
