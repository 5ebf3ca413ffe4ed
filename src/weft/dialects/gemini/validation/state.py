"""Checks one candidate of a generateContent stream: its parts, calls and grounding."""

import re
from collections.abc import Callable

from weft.dialects.rules import JsonValue
from weft.dialects.validation.reporter import JsonObject, Reporter
from weft.dialects.validation.untyped import count, elements, fields, shown, text

Report = Callable[[str, str], None]

_REQUIRED_FIELDS: dict[str, dict[str, type]] = {
    "functionCall": {},
    "functionResponse": {"name": str, "response": dict},
    "inlineData": {"mimeType": str, "data": str},
    "fileData": {"fileUri": str},
    "executableCode": {"code": str, "language": str},
    "codeExecutionResult": {"outcome": str},
    "toolCall": {"toolType": str},
    "toolResponse": {"toolType": str},
}
"""The payloads other than text, with their required fields."""

_PAYLOADS = frozenset(_REQUIRED_FIELDS) | {"text"}
# Keys that describe a payload and make no part by themselves.
_PART_METADATA = frozenset(
    {"thought", "thoughtSignature", "partMetadata", "mediaResolution", "videoMetadata"}
)
_VALUE_KEYS = ("stringValue", "numberValue", "boolValue", "nullValue")
_FINISH_REASONS = frozenset(
    {
        "STOP",
        "MAX_TOKENS",
        "SAFETY",
        "RECITATION",
        "BLOCKLIST",
        "PROHIBITED_CONTENT",
        "SPII",
        "LANGUAGE",
        "IMAGE_SAFETY",
        "IMAGE_PROHIBITED_CONTENT",
        "IMAGE_RECITATION",
        "MALFORMED_FUNCTION_CALL",
        "MALFORMED_RESPONSE",
        "UNEXPECTED_TOOL_CALL",
        "TOO_MANY_TOOL_CALLS",
        "MISSING_THOUGHT_SIGNATURE",
        "CONTINUATION",
        "NO_IMAGE",
        "IMAGE_OTHER",
        "OTHER",
    }
)
# Both alphabets of RFC 4648 (§4 and §5): protobuf's JSON accepts either, with or without padding.
_BASE64 = re.compile("[A-Za-z0-9+/_-]*={0,2}")


class ValidatedCandidate:
    """Checks one candidate. `calls` are the ids of all calls of the response."""

    def __init__(self, index: int, report: Report, report_once: Reporter, calls: set[str]) -> None:
        self._index = index
        self._report = report
        self._report_once = report_once
        self._calls = ValidatedCalls(report, calls)
        self._reason: str | None = None
        self._thought = False
        self._joined_texts: list[list[str]] = [[]]
        """The texts that a client joins into one part, each as a list of pieces."""
        self._grounding: JsonObject = {}
        self._executed: set[str] = set()
        """The calls that the host executes, by kind, and by kind and id."""

    def feed(self, candidate: JsonObject) -> None:
        content = candidate.get("content")
        parts = fields(content).get("parts")
        shapes = ((content, dict, "content"), (parts, list, "content.parts"))
        for value, kind, where in shapes:
            if value is not None and not isinstance(value, kind):
                wanted = "an object" if kind is dict else "an array"
                self._report("candidate-shape", f"{where} is {shown(value)}; expected {wanted}")
        role = fields(content).get("role")
        if role not in (None, "model"):
            self._report("role", f"content has role {shown(role)}; expected model")
        # Text after STOP is still shown by official clients, but others stop reading.
        if self._reason is not None and any(map(_has_content, elements(parts))):
            detail = f"content after finishReason {self._reason}; expected it before"
            self._report_once("content-late", self._index, detail)
        for part in elements(parts):
            self._check_part(part)
        self._grounding = fields(candidate.get("groundingMetadata")) or self._grounding
        reason = text(candidate.get("finishReason"))
        if reason and self._reason is not None:
            detail = f"finishReason {shown(reason)} after {self._reason}; expected it once"
            self._report_once("finish-repeated", self._index, detail)
        elif reason and reason not in _FINISH_REASONS:
            self._report("finish-word", f"finishReason {shown(reason)}; expected a known value")
        self._reason = reason[:40] or self._reason

    def finish(self, *, thought: bool) -> None:
        """`thought`: the usage counts thoughts."""
        if self._reason is None:
            detail = f"candidate {self._index} ended without a finishReason; expected one"
            self._report("finish-missing", detail)
        self._calls.finish(thought=thought or self._thought)
        self._check_grounding()

    # Parts

    def _check_part(self, value: JsonValue) -> None:
        part = fields(value)
        payloads = [key for key in part if key in _PAYLOADS]
        unknown = [key for key in part if key not in _PAYLOADS | _PART_METADATA]
        if len(payloads) > 1:
            keys = " and ".join(payloads)
            self._report("part-payload", f"a part with {keys}; expected one of them")
        elif unknown and not payloads and not any("_" in key for key in unknown):
            # A key in snake_case is reported for its spelling, and not as unknown as well.
            keys = ", ".join(unknown)[:80]
            self._report("part-type", f"a part with {keys}; expected a known payload")
        elif not payloads and not unknown:
            keys = ", ".join(part) or "nothing"
            self._report("part-empty", f"a part with {keys}; expected one payload")
        signature = part.get("thoughtSignature")
        if signature is not None:
            encoded = text(signature)
            # A remainder of one character holds six bits, which is no byte.
            if not _BASE64.fullmatch(encoded) or len(encoded.rstrip("=")) % 4 == 1 or not encoded:
                detail = f"thoughtSignature {shown(signature)}; expected base64"
                self._report("signature-spelling", detail)
            # Clients do not join signed text with what follows.
            self._joined_texts.append([])
        for key in payloads:
            self._check_payload(key, part)

    def _check_payload(self, key: str, part: JsonObject) -> None:
        held = part[key]
        if key == "text":
            thought = part.get("thought")
            if not isinstance(held, str) or thought not in (None, True, False):
                detail = f"text {shown(held)}, thought {shown(thought)}"
                self._report("part-shape", f"{detail}; expected a string and a boolean")
            if thought is True:
                self._thought = True
                self._joined_texts.append([])
            else:
                self._joined_texts[-1].append(text(held))
            return
        self._joined_texts.append([])
        wrong = [
            name
            for name, kind in _REQUIRED_FIELDS[key].items()
            if not isinstance(fields(held).get(name), kind)
        ]
        if wrong or not isinstance(held, dict):
            detail = f"{key} is {shown(held)}; expected {', '.join(wrong) or 'an object'}"
            self._report("part-shape", detail)
        elif key == "functionCall":
            self._calls.feed(held, signed=bool(text(part.get("thoughtSignature"))))
        elif key in ("executableCode", "toolCall"):
            self._executed |= {key, f"{key} {text(held.get('id'))}"}
        elif key in _RESULT_CALLS:
            call, id = _RESULT_CALLS[key], text(held.get("id"))
            if call not in self._executed or (id and f"{call} {id}" not in self._executed):
                with_id = f" with id {shown(id)}" if id else ""
                detail = f"{key}{with_id}; expected its {call} before it"
                self._report("result-without-call", detail)

    # Grounding

    def _check_grounding(self) -> None:
        sources = len(elements(self._grounding.get("groundingChunks")))
        joined = ["".join(pieces) for pieces in self._joined_texts]
        # A segment may refer to one part, or to all the text if parts cannot be told apart.
        texts = [part.encode("utf-8", "replace") for part in ("".join(joined), *joined) if part]
        for support in map(fields, elements(self._grounding.get("groundingSupports"))):
            for number in elements(support.get("groundingChunkIndices")):
                index = count(number)
                if index is None or index >= sources:
                    detail = (
                        f"a segment refers to source {shown(number)}; expected one of {sources}"
                    )
                    self._report("grounding-chunk", detail)
            segment = fields(support.get("segment"))
            start, end = count(segment.get("startIndex", 0)), count(segment.get("endIndex", 0))
            if start is None or end is None or end < start:
                value = f"{shown(segment.get('startIndex'))} to {shown(segment.get('endIndex'))}"
                self._report("grounding-segment", f"a segment from {value}; expected start <= end")
                continue
            if isinstance(segment.get("text"), str):
                copy = text(segment["text"]).encode("utf-8", "replace")
                fits = any(part[start:end] == copy for part in texts)
            else:
                fits = any(end <= len(part) for part in texts)
            if segment and not fits:
                detail = f"bytes {start} to {end} are not {shown(segment.get('text'))}"
                wanted = "expected UTF-8 byte offsets of the text"
                self._report("grounding-segment", f"{detail}; {wanted}")


_RESULT_CALLS = {"codeExecutionResult": "executableCode", "toolResponse": "toolCall"}


def _has_content(part: JsonValue) -> bool:
    """Whether a part has content: an empty text does not count."""
    return any(key in _PAYLOADS and value != "" for key, value in fields(part).items())


class ValidatedCalls:
    """Checks the calls of one candidate; `ids` are those of the whole response."""

    def __init__(self, report: Report, ids: set[str]) -> None:
        self._report = report
        self._ids = ids
        self._open: str | None = None
        """The name of the call that is streamed."""
        self._path: str | None = None
        """The path of the string that is streamed."""
        self._paths: set[str] = set()
        self._unsigned: str | None = None
        """The name of the first call, if it has no signature."""
        self._count = 0

    def feed(self, call: JsonObject, *, signed: bool) -> None:
        # A piece, or the end, of a streamed call has neither name nor id nor whole arguments.
        if not {"name", "id", "args"} & set(call):
            if self._open is None:
                detail = "a piece of a call while none is open; expected a call with a name first"
                self._report("call-stray", detail)
        else:
            self._start(call, signed)
        args, pieces = call.get("args"), call.get("partialArgs")
        if args is not None and (not isinstance(args, dict) or pieces is not None):
            detail = f"args is {shown(args)}, partialArgs {shown(pieces)}"
            self._report("call-args", f"{detail}; expected one object, or pieces")
        if pieces is not None and not isinstance(pieces, list):
            self._report("partial-args", f"partialArgs is {shown(pieces)}; expected an array")
        for piece in map(fields, elements(pieces)):
            self._check_partial_arg(piece)
        # A piece that lacks `willContinue` ends the call, whatever else it holds.
        self._open = (self._open or "") if call.get("willContinue") is True else None

    def finish(self, *, thought: bool) -> None:
        if self._open is not None:
            detail = f"the response ended inside the call of {shown(self._open)}; expected its end"
            self._report("call-open", detail)
        if thought and self._unsigned is not None:
            detail = f"the call of {shown(self._unsigned)}, the first; expected a thoughtSignature"
            self._report("call-unsigned", detail)

    def _start(self, call: JsonObject, signed: bool) -> None:
        name, id = text(call.get("name")), call.get("id")
        if self._open is not None:
            detail = f"the call of {shown(name)} starts inside that of {shown(self._open)}"
            self._report("call-overlap", f"{detail}; expected that call to end first")
        if not name:
            self._report("call-name", f"a call named {shown(call.get('name'))}; expected a name")
        if "id" in call and not text(id):
            self._report("call-id", f"a call with id {shown(id)}; expected one, or none at all")
        elif text(id) and text(id) in self._ids:
            detail = f"a second call with the id {shown(id)}; expected a new one"
            self._report("call-id-repeated", detail)
        self._ids.add(text(id))
        self._count += 1
        # Of parallel calls only the first is signed; the others validly have no signature.
        if self._count == 1 and not signed:
            self._unsigned = name
        self._open, self._path = name, None
        self._paths.clear()

    def _check_partial_arg(self, piece: JsonObject) -> None:
        path = text(piece.get("jsonPath"))
        values = [key for key in _VALUE_KEYS if key in piece]
        if not path.startswith("$") or len(values) != 1:
            detail = f"a piece with jsonPath {shown(path)} and {', '.join(values) or 'no value'}"
            self._report("partial-args", f"{detail}; expected a path from $ and one value")
            return
        if self._path is not None and path != self._path:
            detail = f"a piece of {path[:80]} while {self._path[:80]} is not complete"
            self._report("partial-args-order", f"{detail}; expected the rest of it first")
        elif self._path is None and path in self._paths:
            detail = f"a second value for {path[:80]}; expected it to start once"
            self._report("partial-args-order", detail)
        self._paths.add(path)
        self._path = path if piece.get("willContinue") is True else None
