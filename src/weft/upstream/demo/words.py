"""What the demo model says. It never claims to understand."""

import re
from collections.abc import Sequence

from weft.request import Tool

_QUOTE = 200
_RESULT = 600
_PARAGRAPHS = 42

TOKENS_A_WORD = 1.3
"""A rough rule, and the only way in which tokens are counted here."""

_REAL = "I cannot understand that, but the way of this answer is real: it left the upstream in"
_WORDS = re.compile(r"\s*\S+\s*")
_GREETING = re.compile(r"(hi|hello|hey|good (morning|afternoon|evening))\b", re.IGNORECASE)


def words(text: str) -> list[str]:
    """Returns the words of a text, each with the blanks around it: joined they are the text."""
    return _WORDS.findall(text)


def tokens(text: str) -> int:
    """Returns about how many tokens a text is."""
    return _rounded_up(len(text.split()))


def _rounded_up(count: int) -> int:
    return -int(-count * TOKENS_A_WORD // 1)


def quoted(text: str, longest: int = _QUOTE) -> str:
    """Returns a text as a quotation, cut where it is long."""
    text = text.strip()
    if len(text) > longest:
        text = text[:longest].rstrip() + " …"
    return "\n".join(f"> {line}".rstrip() for line in text.splitlines() or [""])


def greeting(message: str) -> str:
    return "Hello! " if _GREETING.match(message.strip()) else ""


def answer(message: str, *, name: str, dialect: str, tools: Sequence[Tool], files: int) -> str:
    """Returns what is said to a message."""
    said = (
        f"{greeting(message)}I am the demo model of Weft: a script, not a language model.",
        f"You wrote:\n\n{quoted(message)}" if message.strip() else "You wrote nothing.",
        f"{_REAL} `{dialect}`, as a model of this upstream would write it.",
        _about_files(files),
        _about_tools(tools),
        f"Other models to try:\n\n{_others(name)}",
    )
    return "\n\n".join(part for part in said if part)


def _about_files(count: int) -> str:
    if not count:
        return ""
    return f"There was {'a file' if count == 1 else f'{count} files'} too. I did not look inside."


def _about_tools(tools: Sequence[Tool]) -> str:
    if not tools:
        return ""
    names = ", ".join(f"`{tool.name}`" for tool in tools[:5])
    more = f" and {len(tools) - 5} more" if len(tools) > 5 else ""
    return f"I may call {names}{more}: name one in your message, and I do."


def _others(name: str) -> str:
    rows = (
        ("reasoner", "thinks first, and signs what it thought"),
        ("tools", "calls your tools, the first two at once"),
        ("sources", "cites pages"),
        ("long", "writes 2,000 words; `slow` takes its time"),
        ("error-429", "and `overloaded`, `cut`, `stall`, `duplicate-calls` fail as hosts do"),
    )
    return "\n".join(f"- `{name}/{model}` {what}." for model, what in rows)


def results(found: Sequence[tuple[str, str, bool]]) -> str:
    """Returns what is said to the results of calls: the name, the text, whether it failed."""
    said = [
        f"`{name}` {'failed' if failed else 'answered'}:\n\n{quoted(text, _RESULT)}"
        for name, text, failed in found
    ]
    end = "That is all I can tell: I am a script, and repeat what your tools say."
    return "\n\n".join((*said, end))


def thought(message: str, *, calls: Sequence[str]) -> str:
    """Returns what is thought before an answer."""
    about = " ".join(message.split())[:80] or "nothing"
    plan = (
        f"Of the tools, {' and '.join(calls)} will help, so I call that first."
        if calls
        else "No tool is needed. I say what I am, and repeat the question."
    )
    return f'The user says "{about}". I am a script, so this is all there is to think. {plan}'


SOURCED = (
    ("Answers are streamed as server-sent events, which are part of the HTML standard.",
     "https://html.spec.whatwg.org/multipage/server-sent-events.html", "Server-sent events"),
    ("Each event holds JSON, which is text in UTF-8.",
     "https://www.rfc-editor.org/rfc/rfc8259", "RFC 8259: JSON"),
    ("All of it travels in the body of an HTTP response.",
     "https://www.rfc-editor.org/rfc/rfc9110", "RFC 9110: HTTP semantics"),
)  # fmt: skip
"""Sentences, each with the page it rests on and the title of that page."""

SLOW = "This model is slow on purpose: twenty seconds of silence, then one word a second."

_SENTENCES = (
    "A stream is read as fast as the slowest reader on its way takes it.",
    "When nobody reads, the sender must wait, and nothing may pile up in between.",
    "Close the page now, and the upstream should stop at once rather than go on for nobody.",
    "Each piece arrives once, in order, and none of them is ever taken back.",
    "A limit on the tokens of the answer ends this text early, with a reason that says so.",
    "The words repeat themselves because a script wrote them, and a script has little to say.",
    "What is stored of this answer should be the same as what was shown of it.",
    "Nothing here costs anything, so it can be asked as often as a test needs it.",
    "A keepalive would show up in a pause, but here there is hardly any pause to fill.",
    "Whoever counts these words will find that there are about two thousand of them.",
)


def long(number: int) -> str:
    """Returns about 2,000 words; another number begins elsewhere."""
    paragraphs = []
    for place in range(_PARAGRAPHS):
        chosen = [_SENTENCES[(number + place * 3 + step) % len(_SENTENCES)] for step in (0, 1, 2)]
        paragraphs.append(f"{place + 1}. {' '.join(chosen)}")
    return "\n\n".join(paragraphs)
