"""What the property tests draw: any parts whatever, and legal streams of them."""

from hypothesis import strategies as st
from msgspec import UNSET, Raw

from weft.parts import (
    AnyPart,
    ErrorPart,
    File,
    Finish,
    Opaque,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    ResponseMetadata,
    Source,
    TextDelta,
    TextEnd,
    TextStart,
    ToolApprovalRequest,
    ToolCall,
    ToolParamsDelta,
    ToolParamsEnd,
    ToolParamsStart,
    ToolResult,
    Usage,
)

IDS = st.sampled_from(["a", "b", "a_2", "c"])
NAMES = st.sampled_from(["", "look", "read"])
TEXT = st.text(st.characters(codec="utf-8"), max_size=6)
ARGUMENTS = st.sampled_from(
    [
        "",
        " ",
        "{}",
        "[]",
        "{",
        "}",
        '{"a":1}',
        '{"a":',
        "1}",
        "null",
        "nu",
        "ll",
        '"{\\"a\\":1}"',
        '"',
        "[1,2]",
        "7",
        '{"a":1,"b":[]}',
    ]
)
RAW = st.sampled_from([Raw(b"null"), Raw(b'{"k":1}'), Raw(b'"text"')])
EXTRA = st.one_of(st.just(UNSET), st.sampled_from([Raw(b'{"x":1}')]))
MAYBE = st.none() | st.sampled_from(["s1", "s2"])
KIND = st.sampled_from(["function", "custom", "web_search_call"])
FORMAT = st.sampled_from(["json", "json", "text"])
USAGE = st.none() | st.builds(
    Usage,
    input_tokens=st.none() | st.integers(0, 9),
    output_tokens=st.none() | st.integers(0, 9),
    total_tokens=st.none() | st.integers(0, 9),
)

ANY_PART: st.SearchStrategy[AnyPart] = st.one_of(
    st.builds(ResponseMetadata, id=IDS, model=MAYBE, usage=USAGE, extra=EXTRA),
    st.builds(TextStart, id=IDS, item_id=MAYBE, refusal=st.booleans(), extra=EXTRA),
    st.builds(TextDelta, id=IDS, delta=TEXT, extra=EXTRA),
    st.builds(
        TextEnd,
        id=IDS,
        annotations=st.lists(RAW, max_size=2).map(tuple),
        signature=MAYBE,
        whole=st.none() | TEXT,
        extra=EXTRA,
    ),
    st.builds(ReasoningStart, id=IDS, kind=st.sampled_from(["raw", "summary"]), item_id=MAYBE),
    st.builds(ReasoningDelta, id=IDS, delta=TEXT, extra=EXTRA),
    st.builds(ReasoningEnd, id=IDS, encrypted=MAYBE, origin=MAYBE, whole=st.none() | TEXT),
    st.builds(
        ToolParamsStart,
        id=IDS,
        name=NAMES,
        kind=KIND,
        provider_executed=st.booleans(),
        format=FORMAT,
    ),
    st.builds(ToolParamsDelta, id=IDS, delta=ARGUMENTS, extra=EXTRA),
    st.builds(ToolParamsEnd, id=IDS, whole=st.none() | ARGUMENTS, extra=EXTRA),
    st.builds(
        ToolCall,
        id=IDS,
        name=NAMES,
        params=ARGUMENTS,
        kind=KIND,
        provider_executed=st.booleans(),
        format=FORMAT,
        invalid=st.sampled_from([None, None, "nameless", "bad-arguments", "stream-failed"]),
        signature=MAYBE,
    ),
    st.builds(
        ToolResult,
        id=IDS,
        result=RAW,
        preliminary=st.booleans(),
        earlier=st.booleans(),
        is_error=st.booleans(),
    ),
    st.builds(ToolApprovalRequest, id=IDS, approval_id=IDS),
    st.builds(Source, id=IDS, kind=st.just("url"), url=st.just("https://a.example")),
    st.builds(File, id=IDS, media_type=st.just("image/png"), data=st.just("AA==")),
    st.builds(Opaque, origin=st.just("gemini"), kind=st.just("x"), raw=RAW),
    st.builds(ErrorPart, kind=st.sampled_from(["upstream", "truncated"]), message=TEXT),
    st.builds(
        Finish,
        reason=st.sampled_from(
            ["stop", "length", "tool-calls", "content-filter", "pause", "error", "other"]
        ),
        raw_reason=MAYBE,
        usage=USAGE,
    ),
)

SOUP: st.SearchStrategy[list[AnyPart]] = st.lists(ANY_PART, max_size=14)
