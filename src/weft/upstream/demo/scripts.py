"""The models: what each of them thinks, says and calls in answer to a request.

A script is complete before its first word is sent. `timeline` cuts it to the limits of the request
and decides when which part of it is sent.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import msgspec
from msgspec import UNSET

from weft.dialects.error_classes import new_error
from weft.parts import ErrorPart
from weft.request import (
    AnyContent,
    CallContent,
    FileContent,
    ImageContent,
    Message,
    Request,
    ResultContent,
    TextContent,
    Tool,
    ToolChoice,
)
from weft.upstream.demo import broken, texts
from weft.upstream.demo.schema_samples import sample
from weft.upstream.demo.texts import ToolOutcome

DEFAULT = "chat"
"""The model that answers a request without a model."""


@dataclass(frozen=True, slots=True)
class ReasoningStep:
    text: str


@dataclass(frozen=True, slots=True)
class TextStep:
    text: str
    citations: tuple[tuple[str, str, str], ...] = ()
    """Sentences of the text, each with a URL and a title."""


@dataclass(frozen=True, slots=True)
class CallStep:
    tool: Tool
    arguments: str


Step = ReasoningStep | TextStep | CallStep
ScriptEnding = Literal["finish", "error", "cut", "stall"]
"""How an answer ends: complete; or, after half of it, with an error, with a closed connection, or
never.
"""


@dataclass(frozen=True, slots=True)
class Script:
    steps: tuple[Step, ...]
    ending: ScriptEnding = "finish"
    slow: bool = False
    malformed: bool = False
    """Sent as `broken_stream` where that is the dialect."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a model has to answer: the end of a conversation."""

    request: Request
    upstream: str
    dialect: str
    text: str
    """What the user typed last."""
    results: tuple[ToolOutcome, ...]
    """The results of the calls that the model made last."""
    files: int


def script_of(request: Request, upstream: str, dialect: str) -> Script | ErrorPart:
    """Returns what the model of a request does, or the error that it answers with.

    `upstream` is the name under which the answer mentions the other models.
    """
    model = request.model or DEFAULT
    if model in _ERRORS:
        return _ERRORS[model]
    if model not in _SCRIPTS:
        known = ", ".join(MODELS)
        return new_error("not-found", f"there is no model {model!r:.80}; there are {known}")
    return _SCRIPTS[model](_read_prompt(request, upstream, dialect))


def _read_prompt(request: Request, upstream: str, dialect: str) -> Prompt:
    messages = request.messages
    roles = [message.role for message in messages]
    answered = len(roles) - roles[::-1].index("assistant") if "assistant" in roles else 0
    pending = messages[answered:]
    # Only if results come last: a user who typed something after them wants an answer to that.
    outcomes = _outcomes(messages, pending) if pending and _has_result(pending[-1]) else ()
    # Some clients put several texts into one message: the last is what the person typed.
    typed: Sequence[AnyContent] = next(
        (
            message.content
            for message in reversed(messages)
            if message.role == "user" and not all(map(_is_result, message.content))
        ),
        (),
    )
    written = [one.text for one in typed if isinstance(one, TextContent) and one.text.strip()]
    files = sum(isinstance(one, ImageContent | FileContent) for one in typed)
    text = written[-1] if written else ""
    return Prompt(request, upstream, dialect, text, outcomes, files)


def _has_result(message: Message) -> bool:
    return any(map(_is_result, message.content))


def _outcomes(messages: Sequence[Message], some: Sequence[Message]) -> tuple[ToolOutcome, ...]:
    """The results in some of the messages, with the names of the calls in all of them."""
    calls = [one for message in messages for one in message.content]
    names = {one.id: one.name for one in calls if isinstance(one, CallContent)}
    found = []
    for result in (one for message in some for one in message.content):
        if isinstance(result, ResultContent):
            shown = [
                one.text if isinstance(one, TextContent) else "(a file)" for one in result.content
            ]
            name = names.get(result.id) or result.name or "the tool"
            found.append(ToolOutcome(name, "\n".join(shown), result.is_error))
    return tuple(found)


def _is_result(content: AnyContent) -> bool:
    return isinstance(content, ResultContent)


# Which tools are called

_COMMON_WORDS = re.compile(
    "get|set|list|fetch|find|make|tool|function|call|with|from|that|this|what|which|your|will|when|"
    "then|than|have|does|into|about|the|and|for|are|was|use|used|using|user|returns?|given|show|"
    "tell|give|some|more|only|also|must|should|would|could|can|not|you|how|please"
)
"""Words that say nothing about a tool."""

_MAX_FREE_TEXT = 2000
"""Characters of a message that are passed to a tool for free text."""

_LETTERS = re.compile(r"[^\W\d_]+")
_CAMEL_CASE = re.compile(r"(?<=[a-z])(?=[A-Z])")


def _allowed_tools(request: Request) -> list[Tool]:
    """The tools that the client runs and that `tool_choice` allows."""
    choice = request.tool_choice or ToolChoice()
    tools = [tool for tool in request.tools if tool.kind in ("function", "custom")]
    if choice.mode == "none":
        return []
    if choice.name is not None:
        return [tool for tool in tools if tool.name == choice.name]
    return [tool for tool in tools if not choice.allowed or tool.name in choice.allowed]


def _relevance(tool: Tool, message: str) -> int:
    """How much a message is about a tool: about its name, or about two words that describe it."""
    keywords = _keywords(message)
    name = _keywords(_CAMEL_CASE.sub(" ", tool.name))
    described = len(_keywords((tool.description or "")[:300]) & keywords)
    if tool.name.lower() in message.lower():
        return 1000 + described
    if name and name <= keywords:
        return 100 + described
    return described if described >= 2 else 0


def _keywords(text: str) -> set[str]:
    """The words of a text without common ones, in the singular."""
    words = (word.lower() for word in _LETTERS.findall(text[:4000]))
    return {
        word.removesuffix("s")
        for word in words
        if len(word) > 2 and not _COMMON_WORDS.fullmatch(word)
    }


def _call(tool: Tool, message: str) -> CallStep:
    if tool.kind == "custom":
        return CallStep(tool, message.strip()[:_MAX_FREE_TEXT] or "example")
    arguments = sample(tool.parameters, message, optional=False)
    return CallStep(tool, _json(arguments if isinstance(arguments, dict) else {}))


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


# The models


def _answer(prompt: Prompt) -> TextStep:
    """An answer in words, or in the requested output format."""
    output = prompt.request.output
    if output.kind == "json-schema" and output.schema is not UNSET:
        return TextStep(_json(sample(output.schema, prompt.text, optional=True)))
    if prompt.results:
        text = texts.results_text(prompt.results)
    else:
        text = texts.answer_text(
            prompt.text,
            upstream=prompt.upstream,
            dialect=prompt.dialect,
            tools=_allowed_tools(prompt.request),
            files=prompt.files,
        )
    return TextStep(text if output.kind == "text" else _json({"answer": text}))


def _chat(prompt: Prompt) -> Script:
    """Calls the tool that the message is about, or a required one; else answers."""
    tools = [] if prompt.results else _allowed_tools(prompt.request)
    # Stable: of tools that fit equally, the first declared one is called.
    ranked = sorted(tools, key=lambda tool: _relevance(tool, prompt.text), reverse=True)
    choice = prompt.request.tool_choice
    required = choice is not None and choice.mode == "required"
    if ranked and (required or _relevance(ranked[0], prompt.text)):
        return Script((_call(ranked[0], prompt.text),))
    return Script((_answer(prompt),))


def _reasoner(prompt: Prompt) -> Script:
    script, options = _chat(prompt), prompt.request.reasoning
    if options and (options.effort == "none" or options.budget_tokens == 0):
        return script
    calls = [step.tool.name for step in script.steps if isinstance(step, CallStep)]
    reasoning = ReasoningStep(texts.reasoning_text(prompt.text, calls=calls))
    return replace(script, steps=(reasoning, *script.steps))


def _tools(prompt: Prompt) -> Script:
    tools = [] if prompt.results else _allowed_tools(prompt.request)
    # Two calls, to show what clients do with parallel ones.
    most = 1 if prompt.request.parallel_tool_calls is False else 2
    calls = [_call(tool, prompt.text) for tool in tools[:most]]
    return Script(tuple(calls) or (_answer(prompt),))


def _agent(prompt: Prompt) -> Script:
    """Calls each tool that the message is about, one after the other, and answers with all their
    results: what an agent does, without a mind."""
    messages = prompt.request.messages
    typed = [
        place
        for place, message in enumerate(messages)
        if message.role == "user" and not _has_result(message)
    ]
    results = _outcomes(messages, messages[typed[-1] + 1 :] if typed else messages)
    # A tool that failed or was refused is not called again: the result would be the same.
    called = {one.name for one in results}
    for tool in _allowed_tools(prompt.request):
        if tool.name not in called and _relevance(tool, prompt.text):
            return Script((_call(tool, prompt.text),))
    return Script((_answer(replace(prompt, results=results)),))


def _sources(prompt: Prompt) -> Script:
    text = " ".join(sentence for sentence, _, _ in texts.CITED_SENTENCES)
    return Script((TextStep(text, texts.CITED_SENTENCES),))


def _duplicate_calls(prompt: Prompt) -> Script:
    return Script((CallStep(Tool(broken.TOOL), broken.arguments()),), malformed=True)


_SCRIPTS: dict[str, Callable[[Prompt], Script]] = {
    "chat": _chat,
    "reasoner": _reasoner,
    "tools": _tools,
    "agent": _agent,
    "sources": _sources,
    "long": lambda prompt: Script((TextStep(texts.long_text(len(prompt.text))),)),
    "slow": lambda prompt: Script((TextStep(texts.SLOW_TEXT),), slow=True),
    "duplicate-calls": _duplicate_calls,
    # Failures on demand, for tests of clients.
    "error-midstream": lambda prompt: replace(_chat(prompt), ending="error"),
    "cut": lambda prompt: replace(_chat(prompt), ending="cut"),
    "stall": lambda prompt: replace(_chat(prompt), ending="stall"),
}

_ERRORS: dict[str, ErrorPart] = {
    "error-401": new_error("auth", "error-401 rejects every key; that is its purpose"),
    "error-429": new_error("rate", "error-429 is always rate limited", retry_after=1.0),
    "error-500": new_error("server", "error-500 always fails"),
    "overloaded": new_error("overloaded", "overloaded is always overloaded"),
}

MODELS = (*_SCRIPTS, *_ERRORS)
"""The names of all models."""
