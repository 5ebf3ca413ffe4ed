"""One candidate of a generateContent stream, as the checker watches it: parts, calls, grounding."""

import re
from collections.abc import Callable

from weft.dialects.checking.once import JsonObject, Once
from weft.dialects.checking.untyped import count, elements, fields, shown, text
from weft.dialects.rules import JsonValue

Broken = Callable[[str, str], None]

_SHAPES: dict[str, dict[str, type]] = {
    "functionCall": {},
    "functionResponse": {"name": str, "response": dict},
    "inlineData": {"mimeType": str, "data": str},
    "fileData": {"fileUri": str},
    "executableCode": {"code": str, "language": str},
    "codeExecutionResult": {"outcome": str},
    "toolCall": {"toolType": str},
    "toolResponse": {"toolType": str},
}
"""What a part may hold beside text, and what that must have."""

_PAYLOADS = frozenset(_SHAPES) | {"text"}
_BESIDE = frozenset(
    {"thought", "thoughtSignature", "partMetadata", "mediaResolution", "videoMetadata"}
)
_VALUES = ("stringValue", "numberValue", "boolValue", "nullValue")
_REASONS = frozenset(
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
_BASE64 = re.compile("[A-Za-z0-9+/_-]*={0,2}")


class Candidate:
    """Watches one answer. `calls` are the ids of all calls of the response."""

    def __init__(self, index: int, broken: Broken, once: Once, calls: set[str]) -> None:
        self._index = index
        self._broken = broken
        self._once = once
        self._calls = Calls(broken, calls)
        self._reason: str | None = None
        self._thought = False
        self._runs: list[list[str]] = [[]]
        """Text that stands in one part of the whole answer, piece by piece."""
        self._grounding: JsonObject = {}
        self._executed: set[str] = set()
        """Calls that the other end executes, by their kind and id."""

    def feed(self, candidate: JsonObject) -> None:
        content = candidate.get("content")
        parts = fields(content).get("parts")
        shapes = ((content, dict, "content"), (parts, list, "content.parts"))
        for value, kind, where in shapes:
            if value is not None and not isinstance(value, kind):
                wanted = "an object" if kind is dict else "an array"
                self._broken("candidate-shape", f"{where} is {shown(value)}; expected {wanted}")
        role = fields(content).get("role")
        if role not in (None, "model"):
            self._broken("role", f"content has role {shown(role)}; expected model")
        if self._reason is not None and any(map(_says, elements(parts))):
            detail = f"content after finishReason {self._reason}; expected it before"
            self._once("content-late", self._index, detail)
        for part in elements(parts):
            self._part(part)
        self._grounding = fields(candidate.get("groundingMetadata")) or self._grounding
        self._finished(candidate.get("finishReason"))

    def _finished(self, told: JsonValue) -> None:
        reason = text(told)
        if not reason:
            return
        if self._reason is not None:
            detail = f"finishReason {shown(reason)} after {self._reason}; expected it once"
            self._once("finish-repeated", self._index, detail)
        elif reason not in _REASONS:
            self._broken("finish-word", f"finishReason {shown(reason)}; expected a known one")
        self._reason = reason[:40]

    def finish(self, *, thought: bool) -> None:
        """`thought` tells whether the usage counts thoughts."""
        if self._reason is None:
            detail = f"candidate {self._index} ended without a finishReason; expected one"
            self._broken("finish-missing", detail)
        self._calls.finish(thought=thought or self._thought)
        self._grounded()

    # Parts

    def _part(self, value: JsonValue) -> None:
        part = fields(value)
        payloads = [key for key in part if key in _PAYLOADS]
        unknown = [key for key in part if key not in _PAYLOADS | _BESIDE]
        if len(payloads) > 1:
            told = " and ".join(payloads)
            self._broken("part-payload", f"a part with {told}; expected one of them")
        elif unknown and not payloads and not any("_" in key for key in unknown):
            told = ", ".join(unknown)[:80]
            self._broken("part-type", f"a part with {told}; expected a known payload")
        elif not payloads and not unknown:
            told = ", ".join(part) or "nothing"
            self._broken("part-empty", f"a part with {told}; expected one payload")
        self._signed(part.get("thoughtSignature"))
        for key in payloads:
            self._payload(key, part)

    def _signed(self, signature: JsonValue) -> None:
        if signature is None:
            return
        written = text(signature)
        if not _BASE64.fullmatch(written) or len(written.rstrip("=")) % 4 == 1 or not written:
            detail = f"thoughtSignature {shown(signature)}; expected base64"
            self._broken("signature-spelling", detail)
        self._runs.append([])

    def _payload(self, key: str, part: JsonObject) -> None:
        held = part[key]
        if key == "text":
            self._text(held, part)
            return
        self._runs.append([])
        wrong = [
            name
            for name, kind in _SHAPES[key].items()
            if not isinstance(fields(held).get(name), kind)
        ]
        if wrong or not isinstance(held, dict):
            detail = f"{key} is {shown(held)}; expected {', '.join(wrong) or 'an object'}"
            self._broken("part-shape", detail)
        elif key == "functionCall":
            self._calls.feed(held, signed=bool(text(part.get("thoughtSignature"))))
        elif key in ("executableCode", "toolCall"):
            self._executed |= {key, f"{key} {text(held.get('id'))}"}
        elif key in _ANSWERS:
            self._answer(key, text(held.get("id")))

    def _text(self, said: JsonValue, part: JsonObject) -> None:
        if not isinstance(said, str) or part.get("thought") not in (None, True, False):
            detail = f"text {shown(said)}, thought {shown(part.get('thought'))}"
            self._broken("part-shape", f"{detail}; expected a text, true or false")
        if part.get("thought") is True:
            self._thought = True
            self._runs.append([])
        else:
            self._runs[-1].append(text(said))

    def _answer(self, key: str, id: str) -> None:
        call = _ANSWERS[key]
        if call not in self._executed or (id and f"{call} {id}" not in self._executed):
            named = f" with id {shown(id)}" if id else ""
            detail = f"{key}{named}; expected its {call} before it"
            self._broken("result-without-call", detail)

    # Grounding

    def _grounded(self) -> None:
        sources = len(elements(self._grounding.get("groundingChunks")))
        texts = self._texts()
        for support in map(fields, elements(self._grounding.get("groundingSupports"))):
            for number in elements(support.get("groundingChunkIndices")):
                index = count(number)
                if index is None or index >= sources:
                    detail = f"a stretch names source {shown(number)}; expected one of {sources}"
                    self._broken("grounding-chunk", detail)
            self._stretch(fields(support.get("segment")), texts)

    def _texts(self) -> list[bytes]:
        """Where a stretch may stand: in a part, or in all the text, if parts were not told."""
        runs = ["".join(run) for run in self._runs]
        return [said.encode("utf-8", "replace") for said in ("".join(runs), *runs) if said]

    def _stretch(self, segment: JsonObject, texts: list[bytes]) -> None:
        start, end = count(segment.get("startIndex", 0)), count(segment.get("endIndex", 0))
        if start is None or end is None or end < start:
            told = f"{shown(segment.get('startIndex'))} to {shown(segment.get('endIndex'))}"
            self._broken("grounding-segment", f"a stretch from {told}; expected it forwards")
            return
        if isinstance(segment.get("text"), str):
            copy = text(segment["text"]).encode("utf-8", "replace")
            fits = any(said[start:end] == copy for said in texts)
        else:
            fits = any(end <= len(said) for said in texts)
        if segment and not fits:
            detail = f"bytes {start} to {end} are not {shown(segment.get('text'))}"
            self._broken("grounding-segment", f"{detail}; expected bytes of UTF-8 of the text")


_ANSWERS = {"codeExecutionResult": "executableCode", "toolResponse": "toolCall"}


def _says(part: JsonValue) -> bool:
    """Whether a part adds something: an empty text does not."""
    return any(key in _PAYLOADS and value != "" for key, value in fields(part).items())


class Calls:
    """Watches the calls of one answer; `ids` are those of the whole response."""

    def __init__(self, broken: Broken, ids: set[str]) -> None:
        self._broken = broken
        self._ids = ids
        self._open: str | None = None
        """The name of the call that goes on."""
        self._path: str | None = None
        """The value that goes on."""
        self._paths: set[str] = set()
        self._unsigned: str | None = None
        """The first call, if it was not signed."""
        self._count = 0

    def feed(self, call: JsonObject, *, signed: bool) -> None:
        if self._is_piece(call):
            if self._open is None:
                detail = "a piece of a call while none is open; expected a call with a name first"
                self._broken("call-stray", detail)
        else:
            self._begins(call, signed)
        self._arguments(call)
        self._open = (self._open or "") if call.get("willContinue") is True else None

    def _is_piece(self, call: JsonObject) -> bool:
        """A piece, or the mark of the end, has neither name nor id nor whole arguments."""
        return not {"name", "id", "args"} & set(call)

    def finish(self, *, thought: bool) -> None:
        if self._open is not None:
            detail = f"the answer ended inside the call of {shown(self._open)}; expected its end"
            self._broken("call-open", detail)
        if thought and self._unsigned is not None:
            detail = f"the call of {shown(self._unsigned)}, the first; expected a thoughtSignature"
            self._broken("call-unsigned", detail)

    def _begins(self, call: JsonObject, signed: bool) -> None:
        name, id = text(call.get("name")), call.get("id")
        if self._open is not None:
            detail = f"the call of {shown(name)} begins inside that of {shown(self._open)}"
            self._broken("call-overlap", f"{detail}; expected the end of that first")
        if not name:
            self._broken("call-name", f"a call named {shown(call.get('name'))}; expected a name")
        if "id" in call and not text(id):
            self._broken("call-id", f"a call with id {shown(id)}; expected one, or none at all")
        elif text(id) and text(id) in self._ids:
            detail = f"a second call with the id {shown(id)}; expected a new one"
            self._broken("call-id-repeated", detail)
        self._ids.add(text(id))
        self._count += 1
        if self._count == 1 and not signed:
            self._unsigned = name
        self._open, self._path = name, None
        self._paths.clear()

    def _arguments(self, call: JsonObject) -> None:
        args, pieces = call.get("args"), call.get("partialArgs")
        if args is not None and (not isinstance(args, dict) or pieces is not None):
            detail = f"args is {shown(args)}, partialArgs {shown(pieces)}"
            self._broken("call-args", f"{detail}; expected one object, or pieces")
        if pieces is not None and not isinstance(pieces, list):
            self._broken("partial-args", f"partialArgs is {shown(pieces)}; expected an array")
        for piece in map(fields, elements(pieces)):
            self._piece(piece)

    def _piece(self, piece: JsonObject) -> None:
        path = text(piece.get("jsonPath"))
        values = [key for key in _VALUES if key in piece]
        if not path.startswith("$") or len(values) != 1:
            detail = f"a piece with jsonPath {shown(path)} and {', '.join(values) or 'no value'}"
            self._broken("partial-args", f"{detail}; expected a path from $ and one value")
            return
        if self._path is not None and path != self._path:
            detail = f"a piece of {path[:80]} while {self._path[:80]} goes on"
            self._broken("partial-args-order", f"{detail}; expected the rest of that first")
        elif self._path is None and path in self._paths:
            detail = f"a second value for {path[:80]}; expected it to begin once"
            self._broken("partial-args-order", detail)
        self._paths.add(path)
        self._path = path if piece.get("willContinue") is True else None
