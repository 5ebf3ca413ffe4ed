"""Pages that are made from the code say what the code says."""

from pathlib import Path

import pytest

from tests.docs_update import PAGES


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_that_is_made_from_the_code_is_up_to_date(page: Path) -> None:
    assert page.read_text("utf-8") == PAGES[page](), "run: python -m tests.docs_update"
