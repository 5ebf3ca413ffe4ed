"""What the fuzzer feeds: captures, mutated by someone who knows the wire, and noise.

An input is named by a seed and a number: with equal captures, equal names make equal inputs.
"""

import functools
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import weft
from tests import chat
from weft.dialects import DialectName

CAPTURES = Path(__file__).parent / "captures"

Tree = Any
"""JSON, parsed: here nothing may be taken for granted."""


# The corpus


@dataclass(frozen=True)
class Block:
    """One event of a capture: its bytes, what stands before its data, and its data as a tree if
    it is JSON.
    """

    raw: bytes
    head: bytes = b""
    tree: Tree = None


@dataclass(frozen=True)
class Corpus:
    seeds: list[list[Block]]
    values: dict[str, list[Tree]]
    """Under each key what captures hold there."""


def _streams() -> Iterator[bytes]:
    """Streams of our own, so that there is something to mutate even without a capture."""
    entry = chat.entry
    text = [chat.chunk({"role": "assistant", "content": word}) for word in ("", "Hel", "lo ", "🌊")]
    yield chat.stream(text)
    ids = [entry(0, "call_1", "look", "")]
    pieces = [entry(0, "call_1", None, piece) for piece in ('{"a"', ":1", ',"b":"é"}')]
    yield chat.stream([chat.calls(one) for one in ids + pieces], "tool_calls")
    two = [entry(0, "call_1", "look", '{"a":'), entry(1, "call_2", "read", "{}")]
    yield chat.stream([chat.calls(*two), chat.calls(entry(0, None, None, "1}"))], "tool_calls")
    loose = [entry(None, "a", "look", "{}"), entry(None, None, "look", '{"x":[1,2]}')]
    yield chat.stream([chat.calls(one) for one in loose])
    thought = [chat.chunk({"reasoning_content": "hm"}), chat.chunk({"reasoning": "…"})]
    detail = {"type": "reasoning.text", "text": "so", "signature": "s", "index": 0}
    yield chat.stream([*thought, chat.chunk({"reasoning_details": [detail]}), *text])
    tags = ["<th", "ink>why", "</thi", "nk>\n\nbecause", " <tool_call>", '{"name":"look",']
    tags += ['"arguments":{}}', "</tool_call>"]
    yield chat.stream([chat.chunk({"content": one}) for one in tags])
    parts = [{"type": "text", "text": "a"}, {"type": "thinking", "thinking": [{"text": "b"}]}]
    cited = {"type": "url_citation", "url_citation": {"url": "https://a.example", "title": "A"}}
    yield chat.stream([chat.chunk({"content": parts}), chat.chunk({"annotations": [cited]})])
    yield chat.stream([*text, b'data: {"error":{"message":"no","code":429}}\n\n'], None)
    yield chat.stream([chat.chunk({"refusal": "no"}), chat.chunk({}, usage={"prompt_tokens": 1})])
    legacy = [{"name": "look", "arguments": ""}, {"arguments": '{"a":1}'}]
    yield chat.stream([chat.chunk({"function_call": one}) for one in legacy], "function_call")
    custom = {"index": 0, "id": "c", "type": "custom", "custom": {"name": "sh", "input": "ls"}}
    yield chat.stream([chat.calls(custom)], "tool_calls")
    whole = {"message": {"content": "hi", "tool_calls": two}, "finish_reason": "stop"}
    yield json.dumps({"object": "chat.completion", "choices": [whole]}).encode()


def _blocks(raw: bytes) -> list[Block]:
    return [_block(piece) for piece in re.split(rb"(?:\r\n|\r|\n){2,}", raw) if piece]


def _block(raw: bytes) -> Block:
    head, mark, data = raw.rpartition(b"data:")
    try:
        return Block(raw, head + mark, json.loads(data))
    except ValueError:
        return Block(raw)


def _gather(tree: Tree, values: dict[str, list[Tree]]) -> None:
    if isinstance(tree, dict):
        for key, value in tree.items():
            known = values.setdefault(key, [])
            if len(known) < 40 and value not in known:
                known.append(value)
            _gather(value, values)
    elif isinstance(tree, list):
        for value in tree:
            _gather(value, values)


def _converted(raw: bytes, dialect: DialectName) -> list[bytes]:
    """A capture that cannot be converted is no seed: as an input of its own it will be told."""
    try:
        return [weft.convert(raw, "openai-chat", dialect)]
    except Exception:
        return []


def _captures(dialect: str) -> list[bytes]:
    folder = CAPTURES / dialect.replace("-", "_")
    return [path.read_bytes() for path in sorted(folder.glob("*.sse"))]


@functools.cache
def corpus(dialect: DialectName) -> Corpus:
    """What is mutated: our own streams and the captures of the dialect; where that is not chat,
    those of chat too, converted."""
    raws = [*_streams(), *_captures("openai-chat")]
    if dialect != "openai-chat":
        raws = [written for raw in raws for written in _converted(raw, dialect)]
        raws += _captures(dialect)
    seeds = [blocks for raw in raws if (blocks := _blocks(raw))]
    values: dict[str, list[Tree]] = {}
    for blocks in seeds:
        for block in blocks:
            _gather(block.tree, values)
    return Corpus(seeds, values)


# Inputs

ODD: list[Tree] = [
    None, True, False, 0, 1, 2, -1, 10**9, 2**53, 2**63, 2**64, -(2**70), 1.5, 1e300, float("inf"),
    float("nan"), "", " ", "0", "1", "1.5", "x", "null", "{}", "[]", "{", "}", '"', "\\", "\x00",
    '{"a":1}', '{"b":2}', '"{\\"a\\":1}"', '{"a":1}{"a":1}', "\ud83c", "\udf0a", "\ud800x", "é",
    "🌊", "<think>", "</think>", "<tool_call>", "</tool_call>", "<|tool_call_begin|>", "stop",
    "length", "tool_calls", "content_filter", "error", "call_1", "call_2", "look", "read", "look_2",
    "x" * 5000, "{" * 300, '{"a":' * 300, [], [[]], {}, {"a": {}}, [None], ["x", 1, {}],
]  # fmt: skip
TOKENS_OF_NOISE = [
    b"data: ", b"data:", b"event: ", b"event: error", b"id: 1", b": x", b"error: ", b"retry: 1",
    b"\n", b"\r", b"\r\n", b"\n\n", b"[DONE]", b"{", b"}", b"[", b"]", b'"', b":", b",", b"\\",
    b'{"choices":[', b'{"delta":{', b'"content":"', b'"tool_calls":[{', b'"finish_reason":"stop"',
    b'"arguments":"{', b'"index":0', b'"id":"a"', b"null", b"\xff", b"\xed\xa0\xbc",
    b"\xef\xbb\xbf", b"\\ud83c", b"\x00", b"x", b"1", b"\xf0\x9f\x8c\x8a", b"<html>",
    b'{"error":"no"}',
]  # fmt: skip


def changed(tree: Tree, rng: Random, values: dict[str, list[Tree]]) -> Tree:
    """The tree with one thing in it changed. Walks down, and shares what stays."""
    deeper = rng.random() < 0.8
    if isinstance(tree, dict) and tree and deeper:
        key = rng.choice(list(tree))
        return _changed_member(tree, key, rng, values)
    if isinstance(tree, list) and tree and deeper:
        at = rng.randrange(len(tree))
        return [*tree[:at], changed(tree[at], rng, values), *tree[at + 1 :]]
    return _changed_here(tree, rng, values)


def _changed_member(
    tree: dict[str, Tree], key: str, rng: Random, values: dict[str, list[Tree]]
) -> Tree:
    match rng.randrange(10):
        case 0:
            return {name: value for name, value in tree.items() if name != key}
        case 1:
            return {**tree, key: rng.choice(values.get(key) or ODD)}
        case 2:
            other = rng.choice(list(values))
            return {**tree, other: rng.choice(values[other])}
        case _:
            return {**tree, key: changed(tree[key], rng, values)}


def _changed_here(tree: Tree, rng: Random, values: dict[str, list[Tree]]) -> Tree:
    if rng.random() < 0.5:
        return rng.choice(ODD)
    match tree:
        case bool() | None:
            return rng.choice([True, False, None])
        case int() | float():
            return rng.choice([tree + 1, -tree, str(tree), tree / 2 if tree else 0, [tree]])
        case str():
            at = rng.randrange(len(tree) + 1)
            odd = str(rng.choice(ODD))
            return rng.choice(
                [tree[:at], tree[at:], tree * 2, tree[:at] + odd + tree[at:], tree.upper(), [tree]]
            )
        case list():
            return rng.choice([tree * 2, tree[::-1], tree[1:], tree[0] if tree else [], [tree]])
        case _:
            return rng.choice([[tree], {"a": tree}, json.dumps(tree), list(tree)])


def _written(tree: Tree, rng: Random) -> bytes:
    """JSON text: escaped, or with lone surrogates as the bytes they must not be."""
    spaced = (",", ":") if rng.random() < 0.8 else (", ", " : ")
    text = json.dumps(tree, ensure_ascii=rng.random() < 0.5, separators=spaced)
    return text.encode("utf-8", "surrogatepass")


def _drop(blocks: list[Block], rng: Random, at: int, corpus: Corpus) -> None:
    del blocks[at]


def _double(blocks: list[Block], rng: Random, at: int, corpus: Corpus) -> None:
    blocks.insert(rng.randrange(len(blocks) + 1), blocks[at])


def _swap(blocks: list[Block], rng: Random, at: int, corpus: Corpus) -> None:
    other = rng.randrange(len(blocks))
    blocks[at], blocks[other] = blocks[other], blocks[at]


def _truncate(blocks: list[Block], rng: Random, at: int, corpus: Corpus) -> None:
    del blocks[at + 1 :]


def _splice(blocks: list[Block], rng: Random, at: int, corpus: Corpus) -> None:
    other = _window(rng, corpus)
    blocks[at:at] = other[: rng.randrange(1, 6)]


def _change(blocks: list[Block], rng: Random, at: int, corpus: Corpus) -> None:
    tree = blocks[at].tree
    if tree is not None:
        head = blocks[at].head
        tree = changed(tree, rng, corpus.values)
        blocks[at] = Block(head + _written(tree, rng), head, tree)


def _nest(blocks: list[Block], rng: Random, at: int, corpus: Corpus) -> None:
    depth = rng.choice([30, 200, 1500, 20000])
    deep = b"[" * depth + b"]" * rng.choice([0, depth])
    blocks[at] = Block(re.sub(rb"null|\"\"|\d+", lambda match: deep, blocks[at].raw, count=1))


def _grow(blocks: list[Block], rng: Random, at: int, corpus: Corpus) -> None:
    long = b'"%b"' % (b"y" * rng.choice([1000, 20_000, 200_000]))
    blocks[at] = Block(re.sub(rb'""', lambda match: long, blocks[at].raw, count=1))


Mutation = Callable[[list[Block], Random, int, Corpus], None]
MUTATIONS: list[Mutation] = [
    *[_change] * 12, _drop, _drop, _double, _double, _swap, _swap, _truncate, _splice, _splice,
]  # fmt: skip
RARE: list[Mutation] = [_nest, _grow]


def _window(rng: Random, corpus: Corpus) -> list[Block]:
    """A capture, or the piece of a long one that still shows its head or its tail."""
    blocks = rng.choice(corpus.seeds)
    size = rng.randrange(4, 24)
    if len(blocks) <= size:
        return list(blocks)
    head = rng.randrange(size + 1)
    tail = size - head
    return blocks[:head] + blocks[len(blocks) - tail :]


def _flip(raw: bytes, rng: Random) -> bytes:
    data = bytearray(raw)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(4):
            case 0:
                data[at:at] = rng.choice(TOKENS_OF_NOISE)
            case 1:
                del data[at : at + rng.randrange(1, 9)]
            case 2 if at < len(data):
                data[at] = rng.randrange(256)
            case _:
                data[at:at] = rng.randbytes(rng.randrange(1, 4))
    return bytes(data)


def _framed(blocks: list[Block], rng: Random) -> list[bytes]:
    """The blocks with line ends, and now and then in another framing."""
    end = rng.choice([b"\n\n"] * 6 + [b"\r\n\r\n", b"\r\r", b"\n", b"\r\n", b"\n\r\n\n"])
    raws = [block.raw for block in blocks]
    match rng.randrange(20):
        case 0:
            raws = [raw.removeprefix(b"data: ") for raw in raws]  # JSON lines
        case 1:
            raws = [raw.replace(b"data: ", b"data:") for raw in raws]
        case 2:
            raws = [b"id: %d\n%b" % (number // 2, raw) for number, raw in enumerate(raws)]
        case 3:
            names = (b"error", b"ping", b"message", b"")
            raws = [b"event: %b\n%b" % (rng.choice(names), raw) for raw in raws]
        case 4:
            raws = [raw.replace(b",", b",\ndata: ", rng.randrange(3)) for raw in raws]
        case 5:
            raws = [b": keepalive", *raws]
        case 6 if raws:
            raws = [b"\xef\xbb\xbf" + raws[0], *raws[1:]]
        case _:
            pass
    return [raw + end for raw in raws]


def made(seed: int, number: int, dialects: Sequence[str]) -> tuple[list[bytes], int]:
    """The pieces of one input, and which of the variants, each with its dialect, reads it."""
    rng = Random(f"{seed} {number}")
    variant = rng.randrange(len(dialects))
    return mutated(dialects[variant], rng), variant


def mutated(dialect: str, rng: Random) -> list[bytes]:
    """The pieces of one stream: mostly one of this dialect, with something wrong in it."""
    if rng.random() < 0.04:
        return _noise(rng)
    known = corpus(dialect)
    blocks = _window(rng, known)
    for _ in range(rng.choice([0, 1, 1, 1, 2, 2, 3, 5, 9])):
        if blocks:
            mutation = rng.choice(RARE if rng.random() < 0.01 else MUTATIONS)
            mutation(blocks, rng, rng.randrange(len(blocks)), known)
    pieces = _framed(blocks, rng)
    if rng.random() < 0.15 and pieces:
        at = rng.randrange(len(pieces))
        pieces[at] = _flip(pieces[at], rng)
    if rng.random() < 0.1 and pieces:
        pieces[-1] = pieces[-1][: rng.randrange(len(pieces[-1]) + 1)]
    return pieces


def _noise(rng: Random) -> list[bytes]:
    if rng.random() < 0.2:
        return [rng.randbytes(rng.randrange(200)) for _ in range(rng.randrange(4))]
    return rng.choices(TOKENS_OF_NOISE, k=rng.randrange(60))
