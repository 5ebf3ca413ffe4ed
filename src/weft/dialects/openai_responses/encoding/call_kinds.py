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
from weft.dialects.openai_responses.output_schema import Fields, object_fields, without_identity
from weft.partial_json import parse

_json = msgspec.json.Encoder().encode

_NO_FIELDS: Fields = {}
_NULL, _EMPTY_OBJECT, _EMPTY_TEXT, _EMPTY_LIST = Raw(b"null"), Raw(b"{}"), Raw(b'""'), Raw(b"[]")

RESULT_ITEMS: dict[str, tuple[str, Fields]] = {
    "shell_call_output": ("sho", {"output": _EMPTY_LIST}),
    "tool_search_output": ("tso", {"tools": _EMPTY_LIST}),
    "program_output": ("cmo", {"result": _EMPTY_TEXT}),
}
"""Results that are items: how minted ids begin, and what is said of what is not there yet."""


class StreamedParams(NamedTuple):
    """Params that are streamed: `event` is what their events are called, `key` what `done` calls
    them; `path` leads to the string that is meant, if it is not all of the text.
    """

    event: str
    key: str
    path: tuple[str, ...] = ()


class ProgressEvents(NamedTuple):
    """What an item does once it was announced, once it was asked, and at its result."""

    added: str = ""
    called: str = ""
    completed: str = ""
    failed: str = ""


class CallKind(NamedTuple):
    """How calls of one kind are written."""

    type: str
    id_prefix: str
    """How minted ids of such items begin."""

    params_to_fields: Callable[[str], Fields]
    """The keys that the params are."""

    streamed: StreamedParams | None = None
    keys: frozenset[str] = frozenset(("status",))
    """Which of status, call_id and name the item has."""

    placeholders: Fields = _NO_FIELDS
    """What `added` says of keys that are not known yet."""

    progress: ProgressEvents = ProgressEvents()
    result_to_fields: Callable[[Fields, Raw], Fields] | None = None
    """The keys that the result is, if it stands in the item of the call."""

    result_item: str | None = None
    """The type of the item that the result is, if it is one of its own."""

    loss: str | None = None
    """What is lost when such a call of another dialect is written."""


# How params and results become keys


def _as_fields(params: str) -> Fields:
    fields = object_fields(params)
    return _under_key("arguments")(params) if fields is None else fields


def _under_key(key: str) -> Callable[[str], Fields]:
    """The params as they are: their spelling in JSON would be as long again."""
    return lambda params: {key: params}


def _as_arguments(params: str) -> Fields:
    try:
        parse(params)
    except ValueError:
        return _under_key("arguments")(params)
    return {"arguments": Raw(params.encode())}


def result_keys(key: str) -> Callable[[Fields, Raw], Fields]:
    """The keys of a result; what is no object stands under one key."""

    def to_fields(call_fields: Fields, result: Raw) -> Fields:
        fields = object_fields(result)
        return {key: result} if fields is None else without_identity(fields)

    return to_fields


def _mcp_result(call_fields: Fields, result: Raw) -> Fields:
    """What a remote tool gave is text."""
    if object_fields(result) is not None or bytes(result).startswith(b'"'):
        return result_keys("output")(call_fields, result)
    return {"output": Raw(_json(bytes(result).decode()))}


# The same meant by others


class _SearchParams(msgspec.Struct):
    query: str = ""


class _SearchHit(msgspec.Struct):
    url: str | None = None


class _CodeParams(msgspec.Struct):
    code: str = ""


class _ExecutionResult(msgspec.Struct):
    output: str | None = None
    stdout: str | None = None
    stderr: str | None = None


class _TextBlock(msgspec.Struct):
    text: str | None = None


_decode_hits = msgspec.json.Decoder(list[_SearchHit]).decode
_decode_blocks = msgspec.json.Decoder(list[_TextBlock]).decode


def _search_action(params: str) -> Fields:
    query = schema.decode_extra(Raw(params.encode()), _SearchParams).query
    return {"action": Raw(_json({"type": "search", "query": query}))}


def _search_sources(call_fields: Fields, result: Raw) -> Fields:
    try:
        urls = [hit.url for hit in _decode_hits(result) if hit.url]
    except (ValueError, RecursionError):
        return {}
    action = object_fields(call_fields["action"]) or {}
    action["sources"] = Raw(_json([{"type": "url", "url": url} for url in urls]))
    return {"action": Raw(_json(action))}


def _code_fields(params: str) -> Fields:
    code = schema.decode_extra(Raw(params.encode()), _CodeParams).code
    return {"container_id": Raw(b'""'), "code": Raw(_json(code))}


def _code_outputs(call_fields: Fields, result: Raw) -> Fields:
    execution = schema.decode_extra(result, _ExecutionResult)
    printed = [text for text in (execution.output, execution.stdout, execution.stderr) if text]
    return {"outputs": Raw(_json([{"type": "logs", "logs": text} for text in printed]))}


def _mcp_output(call_fields: Fields, result: Raw) -> Fields:
    """A text is that text; anything else is its JSON."""
    try:
        blocks = _decode_blocks(result)
    except (ValueError, RecursionError):
        return _mcp_result(call_fields, result)
    if len(blocks) == 1 and blocks[0].text is not None:
        return {"output": Raw(_json(blocks[0].text))}
    return {"output": Raw(_json(bytes(result).decode()))}


# The rows

_WITH_CALL_ID: frozenset[str] = frozenset(("status", "call_id"))
_WITH_NAME: frozenset[str] = frozenset(("status", "call_id", "name"))
_SEARCH_PROGRESS = ProgressEvents("in_progress", "searching", "completed")

FUNCTION = CallKind(
    "function_call",
    "fc",
    _under_key("arguments"),
    StreamedParams("response.function_call_arguments", "arguments"),
    _WITH_NAME,
    {"arguments": _EMPTY_TEXT},
)
CUSTOM = CallKind(
    "custom_tool_call",
    "ctc",
    _under_key("input"),
    StreamedParams("response.custom_tool_call_input", "input"),
    _WITH_NAME,
    {"input": _EMPTY_TEXT},
)
_WEB_SEARCH = CallKind(
    "web_search_call",
    "ws",
    _as_fields,
    placeholders={"action": Raw(b'{"type":"search","query":""}')},
    progress=_SEARCH_PROGRESS,
    result_to_fields=result_keys("results"),
)
_CODE_INTERPRETER = CallKind(
    "code_interpreter_call",
    "ci",
    _as_fields,
    StreamedParams("response.code_interpreter_call_code", "code", ("code",)),
    placeholders={"container_id": _EMPTY_TEXT, "code": _EMPTY_TEXT, "outputs": _EMPTY_LIST},
    progress=ProgressEvents("in_progress", "interpreting", "completed"),
    result_to_fields=result_keys("outputs"),
)
_MCP = CallKind(
    "mcp_call",
    "mcp",
    _under_key("arguments"),
    StreamedParams("response.mcp_call_arguments", "arguments"),
    frozenset(("status", "name")),
    {"server_label": _EMPTY_TEXT, "arguments": _EMPTY_TEXT},
    ProgressEvents("in_progress", "", "completed", "failed"),
    _mcp_result,
)

CALL_KINDS: dict[str, CallKind] = {
    "function": FUNCTION,
    "custom": CUSTOM,
    "web_search_call": _WEB_SEARCH,
    "code_interpreter_call": _CODE_INTERPRETER,
    "mcp_call": _MCP,
    "file_search_call": CallKind(
        "file_search_call",
        "fs",
        _as_fields,
        placeholders={"queries": _EMPTY_LIST},
        progress=_SEARCH_PROGRESS,
        result_to_fields=result_keys("results"),
    ),
    "image_generation_call": CallKind(
        "image_generation_call",
        "ig",
        _as_fields,
        placeholders={"result": _NULL},
        progress=ProgressEvents("in_progress", "generating", "completed"),
        result_to_fields=result_keys("result"),
    ),
    "mcp_approval_request": CallKind(
        "mcp_approval_request",
        "mcpr",
        _under_key("arguments"),
        keys=frozenset(("name",)),
        placeholders={"server_label": _EMPTY_TEXT, "arguments": _EMPTY_TEXT},
    ),
    "apply_patch_call": CallKind(
        "apply_patch_call",
        "apc",
        _as_fields,
        StreamedParams("response.apply_patch_call_operation_diff", "diff", ("operation", "diff")),
        _WITH_CALL_ID,
        {"operation": _EMPTY_OBJECT},
    ),
    "computer_call": CallKind(
        "computer_call",
        "cu",
        _as_fields,
        keys=_WITH_CALL_ID,
        placeholders={"pending_safety_checks": _EMPTY_LIST},
    ),
    "local_shell_call": CallKind(
        "local_shell_call",
        "lsh",
        _as_fields,
        keys=_WITH_CALL_ID,
        placeholders={"action": _EMPTY_OBJECT},
    ),
    "shell_call": CallKind(
        "shell_call",
        "sh",
        _as_fields,
        keys=_WITH_CALL_ID,
        placeholders={"action": Raw(b'{"commands":[]}')},
        result_item="shell_call_output",
    ),
    "tool_search_call": CallKind(
        "tool_search_call",
        "tsc",
        _as_arguments,
        keys=_WITH_CALL_ID,
        placeholders={"arguments": _EMPTY_OBJECT},
        result_item="tool_search_output",
    ),
    "program": CallKind(
        "program",
        "cm",
        _as_fields,
        keys=frozenset(("call_id",)),
        placeholders={"code": _EMPTY_TEXT, "fingerprint": _EMPTY_TEXT},
        result_item="program_output",
    ),
}
"""The kinds of this wire, by the word that a call has for its tool."""

CLIENT_CALL_KINDS = frozenset(
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

FOREIGN_CALL_KINDS: dict[tuple[str, str | None], CallKind] = {
    ("server_tool_use", "web_search"): _WEB_SEARCH._replace(
        params_to_fields=_search_action,
        result_to_fields=_search_sources,
        loss="only the addresses of what was found are carried",
    ),
    ("server_tool_use", "code_execution"): _CODE_INTERPRETER._replace(
        params_to_fields=_code_fields,
        result_to_fields=_code_outputs,
        loss="only what the code printed is carried",
    ),
    ("executable_code", None): _CODE_INTERPRETER._replace(
        params_to_fields=_code_fields,
        result_to_fields=_code_outputs,
        loss="only what the code printed is carried",
    ),
    ("mcp_tool_use", None): _MCP._replace(
        result_to_fields=_mcp_output, loss="what a remote tool gave is carried as text"
    ),
}
"""What other dialects call the same, by kind and by name (None: any)."""


def provider_call_kind(kind: str, name: str) -> CallKind | None:
    """The row of a call that the provider executes; None if there is no item for it."""
    return (
        CALL_KINDS.get(kind)
        or FOREIGN_CALL_KINDS.get((kind, name))
        or FOREIGN_CALL_KINDS.get((kind, None))
    )
