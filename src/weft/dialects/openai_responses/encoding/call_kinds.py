"""The kinds of calls: how the item of each is written.

The item of a call has the keys of its params, of its result (if that stands in the same item)
and whatever else the decoder kept of it, the later ones first. Kinds of other dialects that mean
the same have rows of their own, which read the other wire's params and results.
"""

from collections.abc import Callable
from typing import NamedTuple

import msgspec
from msgspec import Raw

from weft.dialects.openai_responses import output_schema as schema
from weft.dialects.openai_responses.output_schema import Fields, beside_names, fields
from weft.partial_json import parse

_json = msgspec.json.Encoder().encode

_NOTHING: Fields = {}
_NULL, _EMPTY, _NO_TEXT, _NO_LIST = Raw(b"null"), Raw(b"{}"), Raw(b'""'), Raw(b"[]")

OUTPUTS: dict[str, tuple[str, Fields]] = {
    "shell_call_output": ("sho", {"output": _NO_LIST}),
    "tool_search_output": ("tso", {"tools": _NO_LIST}),
    "program_output": ("cmo", {"result": _NO_TEXT}),
}
"""Results that are items: how minted ids begin, and what is said of what is not there yet."""


class Says(NamedTuple):
    """Params that are streamed: `event` is what their events are called, `key` what `done` calls
    them; `path` leads to the string that is meant, if it is not all of the text.
    """

    event: str
    key: str
    path: tuple[str, ...] = ()


class Progress(NamedTuple):
    """What an item does once it was announced, once it was asked, and at its result."""

    announced: str = ""
    asked: str = ""
    answered: str = ""
    failed: str = ""


class Kind(NamedTuple):
    """How calls of one kind are written."""

    type: str
    prefix: str
    """How minted ids of such items begin."""

    asked: Callable[[str], Fields]
    """The keys that the params are."""

    says: Says | None = None
    keys: frozenset[str] = frozenset(("status",))
    """Which of status, call_id and name the item has."""

    zeros: Fields = _NOTHING
    """What `added` says of keys that are not known yet."""

    progress: Progress = Progress()
    answered: Callable[[Fields, Raw], Fields] | None = None
    """The keys that the result is, if it stands in the item of the call."""

    output: str | None = None
    """The type of the item that the result is, if it is one of its own."""

    adapted: str | None = None
    """What is lost when such a call of another dialect is written."""


# How params and results become keys


def _spread(params: str) -> Fields:
    told = fields(params)
    return _text("arguments")(params) if told is None else told


def _text(key: str) -> Callable[[str], Fields]:
    """The params as they are: their spelling in JSON would be as long again."""
    return lambda params: {key: params}


def _value(params: str) -> Fields:
    try:
        parse(params)
    except ValueError:
        return _text("arguments")(params)
    return {"arguments": Raw(params.encode())}


def result_keys(key: str) -> Callable[[Fields, Raw], Fields]:
    """The keys of a result; what is no object stands under one key."""

    def told(asked: Fields, result: Raw) -> Fields:
        keys = fields(result)
        return {key: result} if keys is None else beside_names(keys)

    return told


def _remote(asked: Fields, result: Raw) -> Fields:
    """What a remote tool gave is text."""
    if fields(result) is not None or bytes(result).startswith(b'"'):
        return result_keys("output")(asked, result)
    return {"output": Raw(_json(bytes(result).decode()))}


# The same meant by others


class _Query(msgspec.Struct):
    query: str = ""


class _Hit(msgspec.Struct):
    url: str | None = None


class _Code(msgspec.Struct):
    code: str = ""


class _Ran(msgspec.Struct):
    output: str | None = None
    stdout: str | None = None
    stderr: str | None = None


class _Said(msgspec.Struct):
    text: str | None = None


_read_hits = msgspec.json.Decoder(list[_Hit]).decode
_read_said = msgspec.json.Decoder(list[_Said]).decode


def _query(params: str) -> Fields:
    query = schema.unpacked(Raw(params.encode()), _Query).query
    return {"action": Raw(_json({"type": "search", "query": query}))}


def _hits(asked: Fields, result: Raw) -> Fields:
    try:
        urls = [hit.url for hit in _read_hits(result) if hit.url]
    except (ValueError, RecursionError):
        return {}
    action = fields(asked["action"]) or {}
    action["sources"] = Raw(_json([{"type": "url", "url": url} for url in urls]))
    return {"action": Raw(_json(action))}


def _code(params: str) -> Fields:
    code = schema.unpacked(Raw(params.encode()), _Code).code
    return {"container_id": Raw(b'""'), "code": Raw(_json(code))}


def _logs(asked: Fields, result: Raw) -> Fields:
    ran = schema.unpacked(result, _Ran)
    told = [text for text in (ran.output, ran.stdout, ran.stderr) if text]
    return {"outputs": Raw(_json([{"type": "logs", "logs": text} for text in told]))}


def _blocks(asked: Fields, result: Raw) -> Fields:
    """A text is that text; anything else is its JSON."""
    try:
        blocks = _read_said(result)
    except (ValueError, RecursionError):
        return _remote(asked, result)
    if len(blocks) == 1 and blocks[0].text is not None:
        return {"output": Raw(_json(blocks[0].text))}
    return {"output": Raw(_json(bytes(result).decode()))}


# The rows

_CALLED: frozenset[str] = frozenset(("status", "call_id"))
_NAMED: frozenset[str] = frozenset(("status", "call_id", "name"))
_SEARCHING = Progress("in_progress", "searching", "completed")

FUNCTION = Kind(
    "function_call",
    "fc",
    _text("arguments"),
    Says("response.function_call_arguments", "arguments"),
    _NAMED,
    {"arguments": _NO_TEXT},
)
CUSTOM = Kind(
    "custom_tool_call",
    "ctc",
    _text("input"),
    Says("response.custom_tool_call_input", "input"),
    _NAMED,
    {"input": _NO_TEXT},
)
_WEB_SEARCH = Kind(
    "web_search_call",
    "ws",
    _spread,
    zeros={"action": Raw(b'{"type":"search","query":""}')},
    progress=_SEARCHING,
    answered=result_keys("results"),
)
_CODE = Kind(
    "code_interpreter_call",
    "ci",
    _spread,
    Says("response.code_interpreter_call_code", "code", ("code",)),
    zeros={"container_id": _NO_TEXT, "code": _NO_TEXT, "outputs": _NO_LIST},
    progress=Progress("in_progress", "interpreting", "completed"),
    answered=result_keys("outputs"),
)
_REMOTE = Kind(
    "mcp_call",
    "mcp",
    _text("arguments"),
    Says("response.mcp_call_arguments", "arguments"),
    frozenset(("status", "name")),
    {"server_label": _NO_TEXT, "arguments": _NO_TEXT},
    Progress("in_progress", "", "completed", "failed"),
    _remote,
)

KINDS: dict[str, Kind] = {
    "function": FUNCTION,
    "custom": CUSTOM,
    "web_search_call": _WEB_SEARCH,
    "code_interpreter_call": _CODE,
    "mcp_call": _REMOTE,
    "file_search_call": Kind(
        "file_search_call",
        "fs",
        _spread,
        zeros={"queries": _NO_LIST},
        progress=_SEARCHING,
        answered=result_keys("results"),
    ),
    "image_generation_call": Kind(
        "image_generation_call",
        "ig",
        _spread,
        zeros={"result": _NULL},
        progress=Progress("in_progress", "generating", "completed"),
        answered=result_keys("result"),
    ),
    "mcp_approval_request": Kind(
        "mcp_approval_request",
        "mcpr",
        _text("arguments"),
        keys=frozenset(("name",)),
        zeros={"server_label": _NO_TEXT, "arguments": _NO_TEXT},
    ),
    "apply_patch_call": Kind(
        "apply_patch_call",
        "apc",
        _spread,
        Says("response.apply_patch_call_operation_diff", "diff", ("operation", "diff")),
        _CALLED,
        {"operation": _EMPTY},
    ),
    "computer_call": Kind(
        "computer_call", "cu", _spread, keys=_CALLED, zeros={"pending_safety_checks": _NO_LIST}
    ),
    "local_shell_call": Kind(
        "local_shell_call", "lsh", _spread, keys=_CALLED, zeros={"action": _EMPTY}
    ),
    "shell_call": Kind(
        "shell_call",
        "sh",
        _spread,
        keys=_CALLED,
        zeros={"action": Raw(b'{"commands":[]}')},
        output="shell_call_output",
    ),
    "tool_search_call": Kind(
        "tool_search_call",
        "tsc",
        _value,
        keys=_CALLED,
        zeros={"arguments": _EMPTY},
        output="tool_search_output",
    ),
    "program": Kind(
        "program",
        "cm",
        _spread,
        keys=frozenset(("call_id",)),
        zeros={"code": _NO_TEXT, "fingerprint": _NO_TEXT},
        output="program_output",
    ),
}
"""The kinds of this wire, by the word that a call has for its tool."""

CLIENT = frozenset(
    (
        "function",
        "apply_patch_call",
        "computer_call",
        "local_shell_call",
        "shell_call",
        "tool_search_call",
    )
)
"""Kinds that a client may be asked to execute. Any other call for it is a function's."""

EQUAL: dict[tuple[str, str | None], Kind] = {
    ("server_tool_use", "web_search"): _WEB_SEARCH._replace(
        asked=_query, answered=_hits, adapted="only the addresses of what was found are carried"
    ),
    ("server_tool_use", "code_execution"): _CODE._replace(
        asked=_code, answered=_logs, adapted="only what the code printed is carried"
    ),
    ("executable_code", None): _CODE._replace(
        asked=_code, answered=_logs, adapted="only what the code printed is carried"
    ),
    ("mcp_tool_use", None): _REMOTE._replace(
        answered=_blocks, adapted="what a remote tool gave is carried as text"
    ),
}
"""What other dialects call the same, by kind and by name (None: any)."""


def executed(kind: str, name: str) -> Kind | None:
    """The row of a call that the provider executes; None if there is no item for it."""
    return KINDS.get(kind) or EQUAL.get((kind, name)) or EQUAL.get((kind, None))
