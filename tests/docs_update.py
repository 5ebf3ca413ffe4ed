"""Writes the pages that are made from the code anew: `python -m tests.docs_update`."""

from pathlib import Path

from tools import rule_pages

from tests import diagrams, docs_settings
from tests.matrix import carrying

DOCS = Path(__file__).parents[1] / "docs"

PAGES = {
    DOCS / "rules.md": rule_pages.rules_page,
    DOCS / "clients.md": rule_pages.clients_page,
    DOCS / "lifecycle.md": diagrams.written,
    DOCS / "carrying.md": carrying.written,
    DOCS / "settings.md": docs_settings.written,
}


def main() -> None:
    for path, write in PAGES.items():
        path.write_text(write(), "utf-8")


if __name__ == "__main__":
    main()
