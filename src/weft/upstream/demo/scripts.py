"""The models: what each of them says, thinks and calls when it is asked.

A script is whole before its first word is sent. How it is cut, timed and spelled is not known
here.
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
from weft.upstream.demo import broken, words
from weft.upstream.demo.schemas import satisfying

DEFAULT = "chat"
"""The model that answers where none is named."""


@dataclass(frozen=True, slots=True)
class Thinks:
    text: str


@dataclass(frozen=True, slots=True)
class Says:
    text: str
    cited: tuple[tuple[str, str, str], ...] = ()
    """Stretches of the text, each with an address and a title."""


@dataclass(frozen=True, slots=True)
class Calls:
    tool: Tool
    params: str


Act = Thinks | Says | Calls
Ending = Literal["finish", "error", "cut", "stall"]
"""How an answer ends: whole; or, after half of it, with an error, at once, or never."""


@dataclass(frozen=True, slots=True)
class Script:
    acts: tuple[Act, ...]
    ending: Ending = "finish"
    slow: bool = False
    malformed: bool = False
    """The stream is the one that `broken` has, where its dialect is spoken."""


@dataclass(frozen=True, slots=True)
class Scene:
    """What a model is asked, and by which names it and its upstream go."""

    request: Request
    upstream: str
    dialect: str


def played(model: str, scene: Scene) -> Script | ErrorPart:
    """Returns what a model does, or the error it answers with."""
    model = model or DEFAULT
    failing = _FAILING.get(model)
    if failing is not None:
        return failing
    script = _PLAYING.get(model)
    if script is None:
        known = ", ".join(MODELS)
        return new_error("not-found", f"there is no model {model!r:.80}; there are {known}")
    return script(scene)


# What was asked


@dataclass(frozen=True, slots=True)
class _Asked:
    """The end of a conversation: what the model must answer to."""

    text: str
    results: tuple[tuple[str, str, bool], ...]
    """Of each call: the name, the text, whether it failed."""

    files: int


def _asked(request: Request) -> _Asked:
    turn = _last_turn(request.messages)
    answered = bool(turn) and any(map(_is_result, turn[-1].content))
    results = [one for message in turn for one in message.content] if answered else []
    said = _last_said(request.messages)
    texts = [one.text for one in said if isinstance(one, TextContent) and one.text.strip()]
    names = {
        one.id: one.name
        for message in request.messages
        for one in message.content
        if isinstance(one, CallContent)
    }
    return _Asked(
        texts[-1] if texts else "",
        tuple(_result(one, names) for one in results if isinstance(one, ResultContent)),
        sum(isinstance(one, ImageContent | FileContent) for one in said),
    )


def _is_result(content: AnyContent) -> bool:
    return isinstance(content, ResultContent)


def _last_said(messages: Sequence[Message]) -> Sequence[AnyContent]:
    """What the user said last, apart from results. Some clients say more than one thing at once:
    the last of them is what the person typed.
    """
    for message in reversed(messages):
        if message.role == "user" and not all(map(_is_result, message.content)):
            return message.content
    return ()


def _last_turn(messages: Sequence[Message]) -> Sequence[Message]:
    """The messages since the model spoke."""
    start = max((at for at, one in enumerate(messages) if one.role == "assistant"), default=-1)
    return messages[start + 1 :]


def _result(result: ResultContent, names: dict[str, str]) -> tuple[str, str, bool]:
    text = "\n".join(
        one.text if isinstance(one, TextContent) else "(a file)" for one in result.content
    )
    return names.get(result.id) or result.name or "the tool", text, result.is_error


# Which tools are called

_GENERIC = re.compile(
    "get|set|list|fetch|find|make|tool|function|call|with|from|that|this|what|which|your|will|when|"
    "then|than|have|does|into|about|the|and|for|are|was|use|used|using|user|returns?|given|show|"
    "tell|give|some|more|only|also|must|should|would|could|can|not|you|how|please"
)
"""Words that say nothing about a tool."""

_FREE = 2000
"""Characters of a message that a tool for free text is given."""

_PARTS = re.compile(r"[^\W\d_]+")
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")


def _callable(request: Request) -> list[Tool]:
    """The tools that may be called: those that a client runs, and that the choice allows."""
    choice = request.tool_choice or ToolChoice()
    tools = [tool for tool in request.tools if tool.kind in ("function", "custom")]
    if choice.mode == "none":
        return []
    if choice.name is not None:
        return [tool for tool in tools if tool.name == choice.name]
    return [tool for tool in tools if not choice.allowed or tool.name in choice.allowed]


def _must(request: Request) -> bool:
    return request.tool_choice is not None and request.tool_choice.mode == "required"


def _fitting(tools: Sequence[Tool], message: str) -> list[Tool]:
    """The tool that a message speaks of, if it speaks of one."""
    said = _terms(message)
    best = max(tools, key=lambda tool: _likeness(tool, message, said), default=None)
    return [best] if best is not None and _likeness(best, message, said) else []


def _likeness(tool: Tool, message: str, said: set[str]) -> int:
    """How much a message speaks of a tool: of its name, or of two words that describe it."""
    named = _terms(_CAMEL.sub(" ", tool.name))
    described = len(_terms((tool.description or "")[:300]) & said)
    if tool.name.lower() in message.lower():
        return 1000 + described
    if named and named <= said:
        return 100 + described
    return described if described >= 2 else 0


def _terms(text: str) -> set[str]:
    """The words of a text that tell something, without the endings of their plurals."""
    found = (word.lower() for word in _PARTS.findall(text[:4000]))
    return {
        word.removesuffix("s") for word in found if len(word) > 2 and not _GENERIC.fullmatch(word)
    }


def _calls(tools: Sequence[Tool], message: str) -> tuple[Calls, ...]:
    return tuple(Calls(tool, _params(tool, message)) for tool in tools)


def _params(tool: Tool, message: str) -> str:
    if tool.kind == "custom":
        return message.strip()[:_FREE] or "example"
    made = satisfying(tool.parameters, message, whole=False)
    return _written(made if isinstance(made, dict) else {})


def _written(value: object) -> str:
    return msgspec.json.encode(value).decode()


# The models


def _text(scene: Scene, asked: _Asked) -> Says:
    """An answer in words, or in the shape that was asked for."""
    output = scene.request.output
    if output.kind == "json-schema" and output.schema is not UNSET:
        return Says(_written(satisfying(output.schema, asked.text, whole=True)))
    if asked.results:
        text = words.results(asked.results)
    else:
        text = words.answer(
            asked.text,
            name=scene.upstream,
            dialect=scene.dialect,
            tools=_callable(scene.request),
            files=asked.files,
        )
    return Says(text if output.kind == "text" else _written({"answer": text}))


def _chat(scene: Scene) -> Script:
    asked = _asked(scene.request)
    tools = [] if asked.results else _callable(scene.request)
    chosen = _fitting(tools, asked.text) or (tools[:1] if _must(scene.request) else [])
    return Script(_calls(chosen, asked.text) or (_text(scene, asked),))


def _reasoner(scene: Scene) -> Script:
    script, asked = _chat(scene), _asked(scene.request)
    options = scene.request.reasoning
    if options and (options.effort == "none" or options.budget_tokens == 0):
        return script
    calls = [act.tool.name for act in script.acts if isinstance(act, Calls)]
    return replace(script, acts=(Thinks(words.thought(asked.text, calls=calls)), *script.acts))


def _tools(scene: Scene) -> Script:
    asked = _asked(scene.request)
    tools = [] if asked.results else _callable(scene.request)
    most = 1 if scene.request.parallel_tool_calls is False else 2
    return Script(_calls(tools[:most], asked.text) or (_text(scene, asked),))


def _sources(scene: Scene) -> Script:
    return Script((Says(" ".join(sentence for sentence, *_ in words.SOURCED), words.SOURCED),))


def _long(scene: Scene) -> Script:
    return Script((Says(words.long(len(_asked(scene.request).text))),))


def _slow(scene: Scene) -> Script:
    return Script((Says(words.SLOW),), slow=True)


def _ending(ending: Ending) -> Callable[[Scene], Script]:
    return lambda scene: replace(_chat(scene), ending=ending)


def _duplicate_calls(scene: Scene) -> Script:
    return Script((Calls(Tool(broken.TOOL), broken.arguments()),), malformed=True)


_PLAYING: dict[str, Callable[[Scene], Script]] = {
    "chat": _chat,
    "reasoner": _reasoner,
    "tools": _tools,
    "sources": _sources,
    "long": _long,
    "slow": _slow,
    "duplicate-calls": _duplicate_calls,
    "error-midstream": _ending("error"),
    "cut": _ending("cut"),
    "stall": _ending("stall"),
}

_FAILING: dict[str, ErrorPart] = {
    "error-401": new_error("auth", "error-401 takes no key at all; this is what it is for"),
    "error-429": new_error("rate", "error-429 is always asked too often", retry_after=1.0),
    "error-500": new_error("server", "error-500 always fails"),
    "overloaded": new_error("overloaded", "overloaded is always overloaded"),
}

MODELS = (*_PLAYING, *_FAILING)
"""The names of all models."""
