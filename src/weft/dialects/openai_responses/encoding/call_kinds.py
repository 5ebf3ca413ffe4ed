"""How the item of each kind of call is written.

A call item has the fields of its params, of its result (if that is part of the item) and those that
the decoder stored; later ones win. Equivalent kinds of other dialects have rows of their own, which
read that dialect's params and results.
"""

from collections.abc import Callable
from typing import NamedTuple

import msgspec
from msgspec import Raw

from weft.dialects.openai_responses import wire
from weft.dialects.openai_responses.extra import without_identity
from weft.dialects.openai_responses.wire import Fields, parse_object
from weft.dialects.raw_json import decode_or_default
from weft.partial_json import parse

_NO_FIELDS: Fields = {}
_EMPTY_OBJECT, _EMPTY_TEXT, _EMPTY_LIST = Raw(b"{}"), Raw(b'""'), Raw(b"[]")

# Ids have the prefixes of the original API; nothing depends on them (Open Responses, Items).
RESULT_ITEMS: dict[str, tuple[str, Fields]] = {
    "shell_call_output": ("sho", {"output": _EMPTY_LIST}),
    "tool_search_output": ("tso", {"tools": _EMPTY_LIST}),
    "program_output": ("cmo", {"result": _EMPTY_TEXT}),
}
"""Result items: the prefix of their ids, and placeholders for unknown fields."""


class StreamedParams(NamedTuple):
    """How params are streamed: the prefix of their events, the key of the value in `.done`, and the
    path of the streamed string if it is not the whole params.
    """

    event: str
    key: str
    path: tuple[str, ...] = ()


class ProgressEvents(NamedTuple):
    """The progress events after `added`, after the call and at the result."""

    added: str = ""
    called: str = ""
    completed: str = ""
    failed: str = ""


class CallKind(NamedTuple):
    """How calls of one kind are written."""

    type: str
    id_prefix: str
    """The prefix of minted item ids."""

    params_to_fields: Callable[[str], Fields]
    """Converts params to item fields."""

    streamed: StreamedParams | None = None
    keys: frozenset[str] = frozenset(("status",))
    """Which of `status`, `call_id` and `name` the item has."""

    labels: tuple[str, ...] = ()
    """Which of `namespace`, `server_label` and `approval_request_id` the item has, if known."""

    placeholders: Fields = _NO_FIELDS
    """The values of fields that are not known at `added`."""

    progress: ProgressEvents = ProgressEvents()
    result_to_fields: Callable[[Fields, Raw], Fields] | None = None
    """Converts a result to item fields, if it is part of the item."""

    result_item: str | None = None
    """The type of the result item, if the result is an item of its own."""

    loss: str | None = None
    """What is lost when such a call of another dialect is written."""


# Params and results as fields


def _as_fields(params: str) -> Fields:
    fields = parse_object(params)
    # Params that are not an object have no keys to become fields.
    return {"arguments": params} if fields is None else fields


def _under_key(key: str) -> Callable[[str], Fields]:
    """Returns the params as one string field. They are not encoded here, which would copy them."""
    return lambda params: {key: params}


def _as_arguments(params: str) -> Fields:
    """Returns the params as the arguments of a tool search, which are an object and not text."""
    try:
        parse(params)
    except ValueError:
        return {"arguments": params}
    return {"arguments": Raw(params.encode())}


def result_keys(key: str) -> Callable[[Fields, Raw], Fields]:
    """Returns the fields of a result; a value that is not an object goes under `key`."""

    def to_fields(call_fields: Fields, result: Raw) -> Fields:
        fields = parse_object(result)
        return {key: result} if fields is None else without_identity(fields)

    return to_fields


def _mcp_result(call_fields: Fields, result: Raw) -> Fields:
    """Returns the output of an MCP call, which is a string."""
    # An object is a result of this dialect; a string is the output as it is.
    if parse_object(result) is not None or bytes(result).startswith(b'"'):
        return result_keys("output")(call_fields, result)
    return {"output": wire.to_raw(bytes(result).decode())}


# Equivalent calls of other dialects


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
    # Other dialects name only the query; the other actions (open a page, find in it) are of this
    # one.
    query = decode_or_default(Raw(params.encode()), _SearchParams).query
    return {"action": wire.to_raw({"type": "search", "query": query})}


def _search_sources(call_fields: Fields, result: Raw) -> Fields:
    try:
        urls = [hit.url for hit in _decode_hits(result) if hit.url]
    except (ValueError, RecursionError):
        return {}
    action = parse_object(call_fields["action"]) or {}
    action["sources"] = wire.to_raw([{"type": "url", "url": url} for url in urls])
    return {"action": wire.to_raw(action)}


def _code_fields(params: str) -> Fields:
    code = decode_or_default(Raw(params.encode()), _CodeParams).code
    # Required here; other dialects have no container, or do not tell its id.
    return {"container_id": _EMPTY_TEXT, "code": wire.to_raw(code)}


def _code_outputs(call_fields: Fields, result: Raw) -> Fields:
    execution = decode_or_default(result, _ExecutionResult)
    # Gemini has one output, Messages has two.
    printed = [text for text in (execution.output, execution.stdout, execution.stderr) if text]
    return {"outputs": wire.to_raw([{"type": "logs", "logs": text} for text in printed])}


def _mcp_output(call_fields: Fields, result: Raw) -> Fields:
    """Returns the text of a single text block, or else the JSON text of the result."""
    try:
        blocks = _decode_blocks(result)
    except (ValueError, RecursionError):
        return _mcp_result(call_fields, result)
    if len(blocks) == 1 and blocks[0].text is not None:
        return {"output": wire.to_raw(blocks[0].text)}
    return {"output": wire.to_raw(bytes(result).decode())}


# The rows

_WITH_CALL_ID: frozenset[str] = frozenset(("status", "call_id"))
_WITH_NAME: frozenset[str] = frozenset(("status", "call_id", "name"))
_SEARCH_PROGRESS = ProgressEvents("in_progress", "searching", "completed")

# For the client
FUNCTION = CallKind(
    "function_call",
    "fc",
    _under_key("arguments"),
    StreamedParams("response.function_call_arguments", "arguments"),
    _WITH_NAME,
    ("namespace",),
    {"arguments": _EMPTY_TEXT},
)
CUSTOM = CallKind(
    "custom_tool_call",
    "ctc",
    _under_key("input"),
    StreamedParams("response.custom_tool_call_input", "input"),
    _WITH_NAME,
    ("namespace",),
    {"input": _EMPTY_TEXT},
)
# Hosted, with an equivalent in other dialects
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
    ("server_label", "approval_request_id"),
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
    # Hosted, only here
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
        placeholders={"result": wire.NULL},
        progress=ProgressEvents("in_progress", "generating", "completed"),
        result_to_fields=result_keys("result"),
    ),
    "mcp_approval_request": CallKind(
        "mcp_approval_request",
        "mcpr",
        _under_key("arguments"),
        keys=frozenset(("name",)),
        labels=("server_label",),
        placeholders={"server_label": _EMPTY_TEXT, "arguments": _EMPTY_TEXT},
    ),
    # Executed by the client, or by the provider (`shell_call`, `tool_search_call`, `program`)
    "apply_patch_call": CallKind(
        "apply_patch_call",
        "apc",
        _as_fields,
        StreamedParams("response.apply_patch_call_operation_diff", "diff", ("operation", "diff")),
        _WITH_CALL_ID,
        placeholders={"operation": _EMPTY_OBJECT},
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
"""Call kinds of this dialect, by the `kind` of the tool-call."""

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
"""Kinds that a client may have to execute. Any other client call is a function call."""

FOREIGN_CALL_KINDS: dict[tuple[str, str | None], CallKind] = {
    # Messages
    ("server_tool_use", "web_search"): _WEB_SEARCH._replace(
        params_to_fields=_search_action,
        result_to_fields=_search_sources,
        loss="only the URLs of the search results are kept",
    ),
    ("server_tool_use", "code_execution"): _CODE_INTERPRETER._replace(
        params_to_fields=_code_fields,
        result_to_fields=_code_outputs,
        loss="only the printed output is kept",
    ),
    # Gemini
    ("executable_code", None): _CODE_INTERPRETER._replace(
        params_to_fields=_code_fields,
        result_to_fields=_code_outputs,
        loss="only the printed output is kept",
    ),
    # Messages
    ("mcp_tool_use", None): _MCP._replace(
        result_to_fields=_mcp_output, loss="the result of an MCP call is kept as text"
    ),
}
"""Equivalent kinds of other dialects, by kind and tool name (None: any name)."""


def provider_call_kind(kind: str, name: str) -> CallKind | None:
    """Returns how a provider-executed call is written; None if there is no item for it."""
    return (
        CALL_KINDS.get(kind)
        or FOREIGN_CALL_KINDS.get((kind, name))
        or FOREIGN_CALL_KINDS.get((kind, None))
    )
