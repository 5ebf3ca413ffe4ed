"""The pages of rules and of clients, as Markdown: `python -m tests.docs_update` writes them."""

from itertools import groupby

from weft.check.clients import UNKNOWN, all_verdicts, verdicts_on
from weft.check.report import verdict_line
from weft.check.rules import LIFECYCLE, SSE, WIRES, rules_of

TITLES = {LIFECYCLE: "streams of every dialect", SSE: "server-sent events"}

RULES_HEAD = """# Rules

Every rule that `weft check` knows, by its id. This page is generated from the files that hold the
rules: `rules.toml` in the folder of each dialect, and `sse.toml` and `lifecycle.toml` in
`src/weft/check`. After a change there, `python -m tests.docs_update` writes it anew.

An *error* breaks clients or loses something, a *warning* does so with some of them, and a *note*
is legal but worth knowing. Errors and warnings make the check fail; notes do not. Below a rule
stands what clients do when it is broken; [another page](clients.md) lists that by client.
"""

CLIENTS_HEAD = """# Clients and broken streams

What known clients do with a stream that breaks a [rule](rules.md), as far as it was observed. What
is not listed has not been tried. This page is generated from
`src/weft/check/clients.toml`. After a change there, `python -m tests.docs_update` writes it anew.

*Executed* versions are run by Weft's own tests, over HTTP, on a capture that breaks the rule.
*Recorded* ones were measured, read or reported elsewhere, on the date that is given. A client

- **raises**: its reader gets an exception,
- **loses**: something that was sent is missing or empty,
- **doubles**: something is there more than once, or joined to itself,
- **hangs**: something stays open forever,
- **ignores**: it takes a response that failed for a good one.
"""


def rules_page() -> str:
    page = [RULES_HEAD]
    for wire in WIRES:
        page.append(f"\n## `{wire}`{f': {TITLES[wire]}' if wire in TITLES else ''}\n")
        for name, rule in rules_of(wire).items():
            page.append(
                f"\n### `{wire}/{name}`\n*{rule.severity}* · {rule.promise}\n\n{rule.why}\n\n"
                f"```text\n{rule.example.rstrip()}\n```\n"
            )
            rows = verdicts_on(f"{wire}/{name}")
            page += ["\n"] if rows else []
            page += [f"- {row.dialect}: {verdict_line(row)}\n" for row in rows]
    return "".join(page)


def clients_page() -> str:
    page = [CLIENTS_HEAD]
    for client, rows in groupby(all_verdicts(), key=lambda row: row.client):
        name = client.name if client.version == UNKNOWN else f"{client.name} {client.version}"
        verdicts = list(rows)
        page.append(f"\n## {name} ({verdicts[0].evidence} {client.date})\n\n")
        page.append("| dialect | rule | effect | what happens | source |\n|---|---|---|---|---|\n")
        page += [
            f"| {row.dialect} | [`{row.rule}`](rules.md#{row.rule.replace('/', '')}) "
            f"| {row.effect} | {row.says} | {row.source} |\n"
            for row in verdicts
        ]
    return "".join(page)
