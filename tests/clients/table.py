"""The table client by upstream by scenario, as text."""

HEADS = {
    "text": "text",
    "tool": "tool",
    "parallel": "parallel",
    "reasoning": "think",
    "reasoning-tool": "think+tool",
    "reasoning-hidden": "hidden",
    "reasoning-mixed": "mixed",
    "follow-up": "2 turns",
    "structured": "schema",
    "json-mode": "json",
    "error-rate": "429",
    "error-bad-request": "400",
    "error-key": "401",
    "error-midstream": "midway",
    "cut": "cut",
    "cancel": "cancel",
}
"""The scenarios, and the heads of their columns: a row has to fit into a line."""
MARKS = {"passed": "\N{CHECK MARK}", "failed": "\N{BALLOT X}"}


def written(cells: list[dict[str, str]]) -> list[str]:
    """The lines of the table: for each cell what became of the whole answer and of the stream."""
    if not cells:
        return []
    found: dict[tuple[str, str], dict[str, list[str]]] = {}
    notes: dict[str, int] = {}
    for cell in sorted(cells, key=lambda cell: cell["mode"], reverse=True):
        row = found.setdefault((cell["client"], cell["upstream"]), {})
        mark = MARKS[cell["outcome"]]
        if cell.get("note"):
            mark += str(notes.setdefault(cell["note"], len(notes) + 1))
        row.setdefault(cell["scenario"], []).append(mark)
    widths = [max(5, len(head)) for head in HEADS.values()]
    names = "  ".join(map(str.ljust, HEADS.values(), widths))
    lines = [f"{'client':20} {'upstream':10} {names}"]
    for (client, upstream), row in sorted(found.items()):
        marks = [" ".join(row.get(scenario, [])) for scenario in HEADS]
        told = "  ".join(map(str.ljust, marks, widths))
        lines.append(f"{client:20} {upstream:10} {told}".rstrip())
    passed = sum(cell["outcome"] == "passed" for cell in cells)
    lines.append(f"{passed} of {len(cells)} cells; each: whole answer, then stream")
    return lines + [f"{number}: {note}" for note, number in notes.items()]
