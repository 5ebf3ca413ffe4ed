"""The JSON shapes of generateContent responses and of the parts in requests, read and written.

A frame of a stream, a whole body and an error body have the same shape. All fields are optional and
unknown ones are skipped. Keys are camelCase on the wire. Arguments, results and metadata of tools
stay raw.
"""

import json
import re
from typing import Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

from weft import large_json

NAME: Final = "gemini"

CODE_KIND, SERVER_TOOL_KIND = "executable_code", "server_tool"
"""The canonical kinds of calls that the host executes."""
CODE_NAME, SERVER_PREFIX = "code_execution", "server:"

# google.rpc.Code, with the HTTP mapping that its definition documents.
ERROR_STATUSES: dict[str, int] = {
    "INVALID_ARGUMENT": 400,
    "FAILED_PRECONDITION": 400,
    "OUT_OF_RANGE": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "ABORTED": 409,
    "ALREADY_EXISTS": 409,
    "RESOURCE_EXHAUSTED": 429,
    "CANCELLED": 499,
    "INTERNAL": 500,
    "UNKNOWN": 500,
    "DATA_LOSS": 500,
    "UNIMPLEMENTED": 501,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}
"""The values of `error.status` with their HTTP status."""

GROWING = frozenset({"text", "stringValue"})
"""Fields that are streamed in pieces, so that a surrogate pair may be split between two."""

SNAKE_CASE_KEY = re.compile(
    rb'"(?:finish_reason|function_(?:call|response)|inline_data|file_data|executable_code|'
    rb"code_execution_result|thought_signature|usage_metadata|model_version|response_id|"
    rb'prompt_feedback|grounding_metadata|citation_metadata|tool_(?:call|response))"'
)
"""Finds a known key in snake_case."""

Json = Raw | UnsetType


class GeminiObject(msgspec.Struct, rename="camel", omit_defaults=True):
    """The base of all shapes."""


# Only some hosts stream arguments, and on request only (`streamFunctionCallArguments`).
class PartialArg(GeminiObject):
    """One value of streamed arguments, with its JSON path."""

    json_path: str | None = None
    string_value: str | None = None
    number_value: Json = UNSET
    bool_value: bool | None = None
    null_value: Json = UNSET
    will_continue: bool | None = None


class GeminiFunctionCall(GeminiObject):
    # Older models send none; the name and the order are then all there is.
    id: str | None = None
    name: str | None = None
    # Absent for a function without parameters. With `partialArgs` instead, an opener has neither.
    args: Json = UNSET
    partial_args: list[PartialArg] | None = None
    will_continue: bool | None = None


class GeminiFunctionResponse(GeminiObject):
    id: str | None = None
    name: str | None = None
    response: Json = UNSET
    # Images and files of a result, in requests.
    parts: list[Raw] | None = None


class GeminiBlob(GeminiObject):
    mime_type: str | None = None
    data: str | None = None
    display_name: str | None = None


class GeminiFileData(GeminiObject):
    mime_type: str | None = None
    file_uri: str | None = None
    display_name: str | None = None


class ExecutableCode(GeminiObject):
    # Mostly absent: a result then belongs to the code before it.
    id: str | None = None
    language: str | None = None
    code: str | None = None


class CodeExecutionResult(GeminiObject):
    id: str | None = None
    outcome: str | None = None
    output: str | None = None


# Tools that the host runs, shown only on request (`includeServerSideToolInvocations`). Clients must
# send them back.
class GeminiToolCall(GeminiObject):
    id: str | None = None
    tool_type: str | None = None
    args: Json = UNSET


class GeminiToolResponse(GeminiObject):
    id: str | None = None
    tool_type: str | None = None
    response: Json = UNSET


class GeminiPart(GeminiObject):
    """One payload, and fields about it."""

    text: str | None = None
    # A summary for people, only with `includeThoughts`.
    thought: bool | None = None
    function_call: GeminiFunctionCall | None = None
    function_response: GeminiFunctionResponse | None = None
    inline_data: GeminiBlob | None = None
    file_data: GeminiFileData | None = None
    executable_code: ExecutableCode | None = None
    code_execution_result: CodeExecutionResult | None = None
    tool_call: GeminiToolCall | None = None
    tool_response: GeminiToolResponse | None = None
    # On any part; of parallel calls, only on the first. Base64, and opaque: it is never decoded.
    thought_signature: str | None = None
    media_resolution: Json = UNSET

    def payloads(self) -> "list[Payload]":
        """The payloads other than text: nearly always none or one."""
        # Most parts are text. This chain is several times faster than building the list.
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
        fields = (
            self.function_call,
            self.function_response,
            self.inline_data,
            self.file_data,
            self.executable_code,
            self.code_execution_result,
            self.tool_call,
            self.tool_response,
        )
        return [payload for payload in fields if payload is not None]


Payload = (
    GeminiFunctionCall
    | GeminiFunctionResponse
    | GeminiBlob
    | GeminiFileData
    | ExecutableCode
    | CodeExecutionResult
    | GeminiToolCall
    | GeminiToolResponse
)


class GeminiContent(GeminiObject):
    parts: list[GeminiPart] | None = None
    role: str | None = None


class GroundingSource(GeminiObject):
    """The source of a grounding chunk. The page of an image is in `sourceUri`."""

    uri: str | None = None
    source_uri: str | None = None
    title: str | None = None
    document_name: str | None = None


class GroundingChunk(GeminiObject):
    web: GroundingSource | None = None
    retrieved_context: GroundingSource | None = None
    maps: GroundingSource | None = None
    image: GroundingSource | None = None


class Segment(GeminiObject):
    """A range of one part, in bytes of UTF-8; the end is exclusive."""

    part_index: int | None = None
    start_index: int | None = None
    end_index: int | None = None
    text: str | None = None


class GroundingSupport(GeminiObject):
    segment: Segment | None = None
    grounding_chunk_indices: list[int] | None = None


class GroundingMetadata(GeminiObject):
    grounding_chunks: list[Raw] | None = None
    grounding_supports: list[GroundingSupport] | None = None
    web_search_queries: Json = UNSET
    search_entry_point: Json = UNSET


class GeminiCitation(GeminiObject):
    uri: str | None = None
    title: str | None = None
    start_index: int | None = None
    end_index: int | None = None


class CitationMetadata(GeminiObject):
    """The list has one of two names, depending on the host."""

    citation_sources: list[Raw] | None = None
    citations: list[Raw] | None = None


class GeminiCandidate(GeminiObject):
    content: GeminiContent | None = None
    finish_reason: str | None = None
    index: int | None = None
    finish_message: str | None = None
    # With CONTINUATION: the turn goes on in a request that has this token.
    continuation_token: str | None = None
    grounding_metadata: GroundingMetadata | None = None
    citation_metadata: CitationMetadata | None = None
    url_context_metadata: Json = UNSET


class UsageMetadata(GeminiObject):
    # Includes the cached ones.
    prompt_token_count: int | None = None
    cached_content_token_count: int | None = None
    # Excludes the thoughts.
    candidates_token_count: int | None = None
    thoughts_token_count: int | None = None
    tool_use_prompt_token_count: int | None = None
    total_token_count: int | None = None


class PromptFeedback(GeminiObject):
    block_reason: str | None = None
    block_reason_message: str | None = None


class GeminiError(GeminiObject):
    code: int | None = None
    message: str | None = None
    status: str | None = None
    details: Json = UNSET


class GenerateContentResponse(GeminiObject):
    """A frame, a whole body, or an error body."""

    candidates: list[GeminiCandidate] | None = None
    usage_metadata: UsageMetadata | None = None
    prompt_feedback: PromptFeedback | None = None
    model_version: str | None = None
    # The same in every frame of a response; the only thing that tells two of them apart.
    response_id: str | None = None
    create_time: str | None = None
    # Raw, since it need not be an object.
    error: Json = UNSET


class GeminiFinishExtra(GeminiObject):
    """The `extra` of a finish, for encoders of this dialect."""

    finish_message: str | None = None
    block_reason_message: str | None = None
    continuation_token: str | None = None
    web_search_queries: Json = UNSET
    search_entry_point: Json = UNSET
    url_context_metadata: Json = UNSET


class SignatureExtra(GeminiObject):
    """The `extra` of a part that has no canonical field for its signature."""

    thought_signature: str | None = None


class ErrorExtra(GeminiObject):
    """The `extra` of an error. Its details may say when to retry."""

    details: Json = UNSET


read = large_json.decoder(GenerateContentResponse)
"""Decodes the data of a frame; raises ValueError if it is not a well-typed frame."""

_json = msgspec.json.Encoder().encode
_decode_list = msgspec.json.Decoder(list[Raw]).decode
_SEPARATOR = re.compile(r"[ \t\r\n,]*")
_decode_next = json.JSONDecoder(strict=False).raw_decode


def error_body(error: GeminiError) -> bytes:
    return _json(GenerateContentResponse(error=Raw(_json(error))))


def raw_part(data: bytes, candidate: int, part: int) -> Raw | None:
    """Returns the bytes of one part of a frame; None if they cannot be found."""
    try:
        candidates = large_json.elements(large_json.members(data)["candidates"])
        content = large_json.members(candidates[candidate])["content"]
        return large_json.elements(large_json.members(content)["parts"])[part].copy()
    except (ValueError, RecursionError, LookupError):
        return None


def array_elements(data: bytes) -> tuple[list[bytes], bool]:
    """Returns the frames of a stream that came as one JSON array, and whether the array is valid.
    Of a truncated or damaged array, the frames before the damage are returned.
    """
    # capture: stream-as-one-array, stream-as-one-array-cut
    try:
        return [bytes(element) for element in _decode_list(data)], True
    except (ValueError, RecursionError):
        pass
    # msgspec says that an array is damaged, but not what came before the damage; raw_decode reads
    # one element at a time.
    text = data.decode("utf-8", "replace")
    elements: list[bytes] = []
    end = 1
    while True:
        start = end + len(_SEPARATOR.match(text, end)[0])  # type: ignore[index]
        try:
            _, end = _decode_next(text, start)
        except (ValueError, RecursionError):
            return elements, False
        elements.append(text[start:end].encode())
