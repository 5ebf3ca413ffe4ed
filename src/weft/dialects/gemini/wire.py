"""The shapes of generateContent, read and written: everything is optional, unknown fields skipped.

A frame of a stream and a whole body have the same shape. Names are camelCase on the wire. What
belongs to others (arguments, results, metadata of a tool) stays raw.
"""

import json
import re
from typing import Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

from weft import large_json

NAME: Final = "gemini"

CODE, SERVER_TOOL = "executable_code", "server_tool"
"""The kinds of the calls that the other end executes, and what they are called."""
CODE_NAME, SERVER_PREFIX = "code_execution", "server:"

GROWING = frozenset({"text", "stringValue"})
"""Fields that come in pieces, so that a surrogate pair may be cut in two there."""

SNAKE = re.compile(
    rb'"(?:finish_reason|function_(?:call|response)|inline_data|file_data|executable_code|'
    rb"code_execution_result|thought_signature|usage_metadata|model_version|response_id|"
    rb'prompt_feedback|grounding_metadata|citation_metadata|tool_(?:call|response))"'
)
"""A key that is spelled in snake_case."""

Json = Raw | UnsetType


class Shape(msgspec.Struct, rename="camel", omit_defaults=True):
    """The base of all shapes."""


class PartialArg(Shape):
    """One value of a call whose arguments are streamed, with its place in them."""

    json_path: str | None = None
    string_value: str | None = None
    number_value: Json = UNSET
    bool_value: bool | None = None
    null_value: Json = UNSET
    will_continue: bool | None = None


class FunctionCall(Shape):
    id: str | None = None
    name: str | None = None
    args: Json = UNSET
    partial_args: list[PartialArg] | None = None
    will_continue: bool | None = None


class FunctionResponse(Shape):
    id: str | None = None
    name: str | None = None
    response: Json = UNSET


class Blob(Shape):
    mime_type: str | None = None
    data: str | None = None


class FileData(Shape):
    mime_type: str | None = None
    file_uri: str | None = None


class ExecutableCode(Shape):
    id: str | None = None
    language: str | None = None
    code: str | None = None


class CodeExecutionResult(Shape):
    id: str | None = None
    outcome: str | None = None
    output: str | None = None


class ToolCall(Shape):
    id: str | None = None
    tool_type: str | None = None
    args: Json = UNSET


class ToolResponse(Shape):
    id: str | None = None
    tool_type: str | None = None
    response: Json = UNSET


class Part(Shape):
    """One payload, and perhaps a signature."""

    text: str | None = None
    thought: bool | None = None
    function_call: FunctionCall | None = None
    function_response: FunctionResponse | None = None
    inline_data: Blob | None = None
    file_data: FileData | None = None
    executable_code: ExecutableCode | None = None
    code_execution_result: CodeExecutionResult | None = None
    tool_call: ToolCall | None = None
    tool_response: ToolResponse | None = None
    thought_signature: str | None = None

    def payloads(self) -> "list[Payload]":
        """What it holds beside text: nearly always nothing, or one thing."""
        if not (
            self.function_call
            or self.function_response
            or self.inline_data
            or self.file_data
            or self.executable_code
            or self.code_execution_result
            or self.tool_call
            or self.tool_response
        ):
            return []
        every = (
            self.function_call,
            self.function_response,
            self.inline_data,
            self.file_data,
            self.executable_code,
            self.code_execution_result,
            self.tool_call,
            self.tool_response,
        )
        return [one for one in every if one is not None]


Payload = (
    FunctionCall
    | FunctionResponse
    | Blob
    | FileData
    | ExecutableCode
    | CodeExecutionResult
    | ToolCall
    | ToolResponse
)


class Content(Shape):
    parts: list[Part] | None = None
    role: str | None = None


class Place(Shape):
    """Where a grounding chunk comes from; an image has its own word for the page."""

    uri: str | None = None
    source_uri: str | None = None
    title: str | None = None
    document_name: str | None = None


class GroundingChunk(Shape):
    web: Place | None = None
    retrieved_context: Place | None = None
    maps: Place | None = None
    image: Place | None = None


class Segment(Shape):
    """A stretch of one part, in bytes of UTF-8; the end is exclusive."""

    part_index: int | None = None
    start_index: int | None = None
    end_index: int | None = None
    text: str | None = None


class Support(Shape):
    segment: Segment | None = None
    grounding_chunk_indices: list[int] | None = None


class Grounding(Shape):
    grounding_chunks: list[Raw] | None = None
    grounding_supports: list[Support] | None = None
    web_search_queries: Json = UNSET
    search_entry_point: Json = UNSET


class Citation(Shape):
    uri: str | None = None
    title: str | None = None
    start_index: int | None = None
    end_index: int | None = None


class Citations(Shape):
    """The list has one name or the other, by host."""

    citation_sources: list[Raw] | None = None
    citations: list[Raw] | None = None


class Candidate(Shape):
    content: Content | None = None
    finish_reason: str | None = None
    finish_message: str | None = None
    index: int | None = None
    continuation_token: str | None = None
    grounding_metadata: Grounding | None = None
    citation_metadata: Citations | None = None
    url_context_metadata: Json = UNSET


class Usage(Shape):
    prompt_token_count: int | None = None
    cached_content_token_count: int | None = None
    candidates_token_count: int | None = None
    thoughts_token_count: int | None = None
    tool_use_prompt_token_count: int | None = None
    total_token_count: int | None = None


class Feedback(Shape):
    block_reason: str | None = None
    block_reason_message: str | None = None


class Error(Shape):
    code: int | None = None
    message: str | None = None
    status: str | None = None
    details: Json = UNSET


class Chunk(Shape):
    """A frame, a whole body, or an error object: one shape reads them all."""

    candidates: list[Candidate] | None = None
    usage_metadata: Usage | None = None
    prompt_feedback: Feedback | None = None
    model_version: str | None = None
    response_id: str | None = None
    create_time: str | None = None
    error: Json = UNSET


class Written(Shape):
    """Content as it is written: parts that are JSON already."""

    parts: list[Raw]
    role: str


class Ended(Shape):
    """A candidate as it is written when it ends."""

    content: Written
    finish_reason: str
    index: int
    finish_message: str | None = None
    continuation_token: str | None = None
    grounding_metadata: Grounding | None = None
    url_context_metadata: Json = UNSET


class Answer(Shape):
    """The last frame of a stream; or a whole body."""

    candidates: list[Ended]
    usage_metadata: Usage | None = None
    model_version: str | None = None
    response_id: str | None = None
    create_time: str | None = None


class Leftover(Shape):
    """What `extra` of a finish keeps for those who speak this dialect too."""

    finish_message: str | None = None
    block_reason_message: str | None = None
    continuation_token: str | None = None
    web_search_queries: Json = UNSET
    search_entry_point: Json = UNSET
    url_context_metadata: Json = UNSET


class Signed(Shape):
    """What `extra` keeps of a part that has no field for a signature."""

    thought_signature: str | None = None


class Failed(Shape):
    """What `extra` of an error keeps: among it, when to try again."""

    details: Json = UNSET


class _RawContent(Shape):
    parts: list[Raw]


class _RawCandidate(Shape):
    content: _RawContent


class _RawChunk(Shape):
    candidates: list[_RawCandidate]


read = large_json.decoder(Chunk)
"""Decodes the data of a frame; raises ValueError for what is not a well-typed frame."""

_read_elements = msgspec.json.Decoder(list[Raw]).decode
_read_raw = msgspec.json.Decoder(_RawChunk).decode
_GAP = re.compile(r"[ \t\r\n,]*")
_scan = json.JSONDecoder(strict=False).raw_decode


def raw_part(data: bytes, candidate: int, part: int) -> Raw | None:
    """Returns the bytes of one part, as they stood in the frame; None if they cannot be told."""
    try:
        return _read_raw(data).candidates[candidate].content.parts[part].copy()
    except (ValueError, RecursionError, IndexError):
        return None


def elements(data: bytes) -> tuple[list[bytes], bool]:
    """Returns the frames of a stream that came as one JSON array, and whether that is all of it:
    of an array that was cut or spoilt, those before the damage.
    """
    try:
        return [bytes(element) for element in _read_elements(data)], True
    except (ValueError, RecursionError):
        return _whole_elements(data.decode("utf-8", "replace")), False


def _whole_elements(text: str) -> list[bytes]:
    found: list[bytes] = []
    end = 1
    while True:
        start = end + len(_GAP.match(text, end)[0])  # type: ignore[index]
        try:
            _, end = _scan(text, start)
        except (ValueError, RecursionError):
            return found
        found.append(text[start:end].encode())
