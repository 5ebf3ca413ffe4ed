"""Recorded bytes, what they mean, and the parts they must become.

Each `openai_chat/<case>.sse` stands beside `<case>.expected.json`, the outcome that the quirk
catalogue asks for (written by hand, before the decoder was asked), and `<case>.parts.jsonl`, the
guarded parts. Each `guard/<case>.jsonl` holds parts as a careless decoder might send them, beside
`<case>.parts.jsonl`, what the guard makes of them; each `stages/<case>.jsonl` parts that pass a
stage of the catalogue first. `python -m tests.captures.update` writes the
`.parts.jsonl` files anew. `<case>.context.json`, where there is one, has what must be known beside
the bytes. `weft test` on the folder of a dialect compares the same.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from tests.captures.catalogue import READINGS, STAGES
from weft.assembler import Response
from weft.captures import Decoded, decode_all
from weft.codec import Decoder
from weft.context import Context
from weft.findings import Findings
from weft.guard import Guard
from weft.ids import Ids
from weft.parts import AnyPart, Part, Source, ToolCall

HERE = Path(__file__).parent
DIALECT: Final = "openai-chat"

_MINTED = re.compile(rb"\b([a-z]+)_[0-9a-f]{32}\b")
_PARTS = msgspec.json.Decoder(AnyPart)


@dataclass(frozen=True, slots=True)
class Capture:
    """One recorded body of Chat Completions."""

    path: Path

    def __str__(self) -> str:
        return self.path.stem

    @property
    def raw(self) -> bytes:
        return self.path.read_bytes()

    @property
    def golden(self) -> Path:
        return self.path.with_suffix(".parts.jsonl")

    @property
    def expected(self) -> list[dict[str, object]]:
        """One outcome a response and choice; nearly always one."""
        found = json.loads(self.path.with_suffix(".expected.json").read_bytes())
        return found if isinstance(found, list) else [found]

    @property
    def reading(self) -> Context:
        """What is known beside the bytes: mostly nothing."""
        return READINGS.get(self.path.stem, Context())

    def decode_all(self) -> list[Decoded]:
        """As `weft parts` does it, with what this capture needs to be known beside it."""
        reading = self.reading
        context = Context(request=reading.request, quirks=reading.quirks)
        return decode_all(self.raw, DIALECT, context=context)

    def decoder(self) -> Decoder:
        """A decoder for the one response of this capture."""
        reading = self.reading
        context = Context(request=reading.request, quirks=reading.quirks, ids=Ids(b"capture"))
        return Decoder(DIALECT, context=context)


@dataclass(frozen=True, slots=True)
class PartsCapture:
    """Parts that no guard has seen yet."""

    path: Path

    def __str__(self) -> str:
        return self.path.stem

    @property
    def parts(self) -> list[Part]:
        return read_lines(self.path.read_bytes())

    @property
    def golden(self) -> Path:
        return self.path.with_suffix(".parts.jsonl")

    def guarded(self) -> tuple[list[Part], Guard, Findings]:
        findings = Findings()
        guard = Guard(Ids(b"capture"), findings)
        parts = self.parts
        if self in STAGED:
            stage = STAGES[str(self)](findings)
            parts = [out for part in parts for out in stage.feed([part])] + stage.finish()
        return guard.feed(parts) + guard.finish(), guard, findings


CHAT = [Capture(path) for path in sorted((HERE / "openai_chat").glob("*.sse"))]
GUARD = [
    PartsCapture(path)
    for path in sorted((HERE / "guard").glob("*.jsonl"))
    if not path.name.endswith(".parts.jsonl")
]
STAGED = [PartsCapture(HERE / "stages" / f"{case}.jsonl") for case in STAGES]


def lines(parts: Iterable[Part]) -> bytes:
    """Parts as `weft parts` prints them."""
    return b"".join(msgspec.json.encode(part) + b"\n" for part in parts)


def read_lines(text: bytes) -> list[Part]:
    return [_PARTS.decode(line) for line in text.splitlines()]


def unminted(text: bytes) -> bytes:
    """Numbers minted ids in order of appearance, so that what seeded them does not matter."""
    seen: dict[bytes, int] = {}

    def number(found: re.Match[bytes]) -> bytes:
        place = seen.setdefault(found[0], len(seen))
        return b"%s_minted_%d" % (found[1], place)

    return _MINTED.sub(number, text)


def outcome(response: Response, wanted: dict[str, object]) -> dict[str, object]:
    """What a response says, in the words of `.expected.json`: keys that hold nothing are left
    out; of the error and of `meta` only what is wanted is told.
    """
    told: dict[str, object] = {
        "text": response.text,
        "reasoning": response.reasoning,
        "refusal": response.refusal,
        "tool_calls": [_call(call) for call in response.tool_calls],
        "invalid_tool_calls": [
            {"id": _wire_id(call.id), "name": call.name, "reason": call.invalid}
            for call in response.invalid_tool_calls
        ],
        "finish_reason": response.finish_reason,
        "usage": _usage(response),
        "sources": [one.url or one.kind for one in response.items if isinstance(one, Source)],
        "error": _error(response, wanted),
    }
    if "meta" in wanted:
        told["meta"] = {"id": _wire_id(response.id), "model": response.model}
    return {key: value for key, value in told.items() if value}


def _wire_id(id: str) -> str | None:
    return None if _MINTED.fullmatch(id.encode()) else id


def _call(call: ToolCall) -> dict[str, object]:
    arguments = call.params if call.format == "text" else json.loads(call.params)
    told = {"id": _wire_id(call.id), "name": call.name, "arguments": arguments}
    return {**told, "signature": call.signature} if call.signature else told


def _usage(response: Response) -> dict[str, int | None] | None:
    usage = response.usage
    if usage is None:
        return None
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
    }


def _error(response: Response, wanted: dict[str, object]) -> dict[str, object] | None:
    error, asked = response.error, wanted.get("error")
    if error is None:
        return None
    told: dict[str, object] = {
        "kind": error.kind,
        "message": error.message,
        "code": error.code,
    }
    return {key: told[key] for key in asked if key in told} if isinstance(asked, dict) else told
