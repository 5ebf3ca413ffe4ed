"""The texts of the demo model. It never claims to understand."""

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

from weft.request import Tool

TOKENS_PER_WORD = 1.3
"""A rough rule, and the only way in which tokens are counted here."""

_QUOTE_LENGTH = 200
_RESULT_LENGTH = 600
_PARAGRAPHS = 42
_TOOLS_SHOWN = 5
# Whitespace belongs to a word, so that deltas lose none of it.
_WORD = re.compile(r"\s*\S+\s*")
_GREETING = re.compile(r"(hi|hello|hey|good (morning|afternoon|evening))\b", re.IGNORECASE)
_REAL = "I cannot understand that, but the path of this answer is real: it left the upstream in"
_OTHER_MODELS = (
    ("reasoner", "thinks first, and signs its reasoning"),
    ("tools", "calls your tools, the first two at once"),
    ("agent", "calls the tools that you mention, one after the other"),
    ("sources", "cites pages"),
    ("long", "writes 2,000 words; `slow` takes its time"),
    ("error-429", "and `overloaded`, `cut`, `stall`, `duplicate-calls` fail as hosts do"),
)


def split_words(text: str) -> list[str]:
    """Returns the words of a text with the whitespace around them: joined they are the text."""
    return _WORD.findall(text)


def count_tokens(text: str) -> int:
    """Returns about how many tokens a text has."""
    return math.ceil(len(text.split()) * TOKENS_PER_WORD)


def quote(text: str, max_length: int = _QUOTE_LENGTH) -> str:
    """Returns a text as a Markdown quotation, shortened if it is long."""
    text = text.strip()
    if len(text) > max_length:
        text = text[:max_length].rstrip() + " …"
    return "\n".join(f"> {line}".rstrip() for line in text.splitlines() or [""])


def answer_text(
    message: str, *, upstream: str, dialect: str, tools: Sequence[Tool], files: int
) -> str:
    """Returns the answer to a message."""
    greeting = "Hello! " if _GREETING.match(message.strip()) else ""
    paragraphs = [
        f"{greeting}I am the demo model of Weft: a script, not a language model.",
        f"You wrote:\n\n{quote(message)}" if message.strip() else "You wrote nothing.",
        f"{_REAL} `{dialect}`, as a model of this upstream would write it.",
    ]
    if files:
        count = "a file" if files == 1 else f"{files} files"
        paragraphs.append(f"There was {count} too. I did not look inside.")
    if tools:
        names = ", ".join(f"`{tool.name}`" for tool in tools[:_TOOLS_SHOWN])
        more = f" and {len(tools) - _TOOLS_SHOWN} more" if len(tools) > _TOOLS_SHOWN else ""
        paragraphs.append(f"I may call {names}{more}: name one in your message, and I will.")
    others = "\n".join(f"- `{upstream}/{model}` {what}." for model, what in _OTHER_MODELS)
    return "\n\n".join((*paragraphs, f"Other models to try:\n\n{others}"))


class ToolOutcome(NamedTuple):
    """The result of a call, as it is shown to the user."""

    name: str
    text: str
    failed: bool


def results_text(outcomes: Sequence[ToolOutcome]) -> str:
    """Returns the answer to the results of calls."""
    paragraphs = [
        f"`{name}` {'failed' if failed else 'answered'}:\n\n{quote(text, _RESULT_LENGTH)}"
        for name, text, failed in outcomes
    ]
    end = "That is all I can say: I am a script, and repeat what your tools return."
    return "\n\n".join((*paragraphs, end))


def reasoning_text(message: str, *, calls: Sequence[str]) -> str:
    """Returns the reasoning before an answer, or before calls of these names."""
    about = " ".join(message.split())[:80] or "nothing"
    plan = (
        f"Of the tools, {' and '.join(calls)} will help, so I call that first."
        if calls
        else "No tool is needed. I say what I am, and repeat the question."
    )
    return f'The user says "{about}". I am a script, so this is all there is to think. {plan}'


CITED_SENTENCES = (
    ("Answers are streamed as server-sent events, which are part of the HTML standard.",
     "https://html.spec.whatwg.org/multipage/server-sent-events.html", "Server-sent events"),
    ("Each event holds JSON, which is text in UTF-8.",
     "https://www.rfc-editor.org/rfc/rfc8259", "RFC 8259: JSON"),
    ("All of it travels in the body of an HTTP response.",
     "https://www.rfc-editor.org/rfc/rfc9110", "RFC 9110: HTTP semantics"),
)  # fmt: skip
"""Sentences, each with the URL and the title of the page that it cites."""

SLOW_TEXT = "This model is slow on purpose: twenty seconds of silence, then one word per second."

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


def long_text(seed: int) -> str:
    """Returns about 2,000 words; another seed begins with another sentence."""
    paragraphs = []
    for place in range(_PARAGRAPHS):
        chosen = [_SENTENCES[(seed + place * 3 + step) % len(_SENTENCES)] for step in (0, 1, 2)]
        paragraphs.append(f"{place + 1}. {' '.join(chosen)}")
    return "\n\n".join(paragraphs)
