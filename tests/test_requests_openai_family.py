"""Words that wires share: data URLs, strict schemas, options of a family."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from tests.strategies import QUICK
from weft.context import Context
from weft.dialects import DIALECTS
from weft.dialects.requests.codec import Loss, Losses
from weft.dialects.requests.data_urls import (
    DataUrl,
    data_url,
    image_url,
    parse_data_url,
    text_of_file,
)
from weft.dialects.requests.fields import check_body
from weft.dialects.requests.names import shorten_identifier
from weft.dialects.requests.openai_family import CacheBreakpoint, OpenAIFamilyOptions
from weft.dialects.requests.strict_schemas import is_strict
from weft.dialects.requests.tools import Grammar, parse_grammar
from weft.dialects.requests.turns import LocatedContent
from weft.errors import BadRequest
from weft.request import (
    FileContent,
    ImageContent,
    Message,
    OpaqueContent,
    OutputFormat,
    ReasoningOptions,
    Request,
    ResultContent,
    TextContent,
    Tool,
    ToolChoice,
)


@QUICK
@given(data=st.text(st.sampled_from("AZaz09+/="), max_size=9))
def test_a_data_url_is_opened_and_written_back(data: str) -> None:
    url = data_url("image/png", data)
    assert parse_data_url(url) == DataUrl("image/png", data)


@pytest.mark.parametrize(
    "head",
    [
        "data:image/png;charset=utf-8;base64",
        "data:image/png;name=a.png; charset=utf-8;base64",
        "DATA:image/png;BASE64",
        "data:image/png;;base64",
    ],
)
def test_the_parameters_of_a_data_url_are_dropped(head: str) -> None:
    assert parse_data_url(f"{head},AA;base64,==") == DataUrl("image/png", "AA;base64,==")


OTHERS = ["", "https://a.example", "data:text/plain,hi", "data:;base64,AA", "data:a/b;x,;base64,AA"]


@pytest.mark.parametrize("url", OTHERS)
def test_other_addresses_stay(url: str) -> None:
    assert parse_data_url(url) is None


@pytest.mark.parametrize(
    ("image", "url"),
    [
        (ImageContent("image/gif", "AA"), "data:image/gif;base64,AA"),
        (ImageContent(url="u"), "u"),
        (ImageContent(file_id="f"), None),
    ],
)
def test_an_image_has_an_address(image: ImageContent, url: str | None) -> None:
    assert image_url(image) == url


@pytest.mark.parametrize(
    ("file", "text"),
    [
        (FileContent("text/plain", "aGk="), "hi"),
        (FileContent("text/plain", "/w=="), None),
        (FileContent("text/plain", "?"), None),
        (FileContent("text/plain", url="u"), None),
        (FileContent("application/pdf", "aGk="), None),
    ],
)
def test_a_document_of_plain_text_is_its_text(file: FileContent, text: str | None) -> None:
    assert text_of_file(file) == text


def test_only_an_identifier_above_the_limit_is_hashed() -> None:
    assert shorten_identifier("u" * 100, 100) == "u" * 100
    assert len(shorten_identifier("u" * 101, 100)) == 64
    assert shorten_identifier("u" * 101, 100) != shorten_identifier("u" * 102, 100)


LIMITS = [
    ("openai-responses", "openai-chat", "safety_identifier", 128),
    ("openai-chat", "openai-responses", "safety_identifier", 128),
    ("openai-responses", "openai-chat", "user", 64),
    ("openai-chat", "anthropic-messages", "user", 256),
    ("openai-chat", "anthropic-messages", "safety_identifier", 256),
    ("anthropic-messages", "openai-chat", "user", 64),
]


@pytest.mark.parametrize(("source", "target", "field", "limit"), LIMITS)
def test_an_identifier_is_hashed_above_the_limit_of_the_target(
    source: str, target: str, field: str, limit: int
) -> None:
    for length in (limit, limit + 1):
        user = "u" * length
        turns = (Message("user", (TextContent("hi"),)),)
        plain = Request("m", turns, dialect=source, max_output_tokens=99)
        request = msgspec.structs.replace(plain, **{field: user})
        losses = Losses()
        codec = DIALECTS[target].request
        assert codec is not None
        body = codec.render(request, Context(), losses).body
        warned = [one.path for one in losses.found if one.outcome == "warned"]
        assert (user.encode() in body, warned) == (length == limit, [field] * (length > limit))


def closed(**properties: object) -> dict[str, object]:
    required = list(properties)
    shut = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**shut, "required": required}


@pytest.mark.parametrize(
    ("schema", "strict"),
    [
        (closed(), True),
        (closed(a={"type": "string"}, b={"type": ["string", "null"]}), True),
        (closed(a=closed(b={"type": "integer"})), True),
        (closed(a={"type": "array", "items": closed()}), True),
        (closed(a={"anyOf": [closed(), {"type": "null"}]}), True),
        ({**closed(a={"$ref": "#/$defs/x"}), "$defs": {"x": closed()}}, True),
        ({"type": "object", "properties": {}}, False),
        ({**closed(a={}), "required": []}, False),
        ({**closed(), "additionalProperties": {"type": "string"}}, False),
        (closed(a={"type": "object"}), False),
        (closed(a={"properties": {}, "type": ["object", "null"]}), False),
        (closed(a={"type": "array", "items": {"type": "object"}}), False),
        (closed(a={"anyOf": [{"type": "object"}]}), False),
        ({**closed(), "$defs": {"x": {"type": "object"}}}, False),
        ({**closed(), "allOf": []}, False),
        ({**closed(), "oneOf": []}, False),
        (closed(a=True), False),
        ({"type": "string"}, False),
        ({"type": "object", "properties": 3}, False),
        ([], False),
    ],
)
def test_a_schema_is_strict_if_every_object_is_closed(schema: object, strict: bool) -> None:
    assert is_strict(Raw(json.dumps(schema).encode())) is strict


def test_no_schema_and_a_bottomless_one_are_not_strict() -> None:
    assert not is_strict(UNSET)
    assert not is_strict(Raw(b'{"items":' * 100_000))


@pytest.mark.parametrize("data", [b"{}", b"", b"{", b"[[1", '{"ä":1}'.encode(), b"[" * 500])
def test_bytes_that_are_text_are_left_to_those_who_read_them(data: bytes) -> None:
    check_body(data)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b'{"a":"\xff"}', "byte 6 is not UTF-8"),
        (b"[" * 5000, "nested too deeply"),
        (b'{"a":' * 950 + b"1" + b"}" * 950, "nested too deeply"),
    ],
)
def test_bytes_that_nobody_can_read_are_refused(data: bytes, reason: str) -> None:
    with pytest.raises(BadRequest) as caught:
        check_body(data)
    assert (caught.value.path, caught.value.reason) == ("", reason)


@pytest.mark.parametrize(
    ("declaration", "grammar"),
    [
        (
            {"format": {"type": "grammar", "definition": "d", "syntax": "regex"}},
            Grammar("d", "regex"),
        ),
        ({"custom": {"format": {"type": "grammar", "grammar": {"definition": "d"}}}}, Grammar("d")),
        ({"format": {"type": "text"}}, None),
        ({"format": 3}, None),
        ({}, None),
    ],
)
def test_a_grammar_is_read_in_either_spelling(declaration: object, grammar: Grammar | None) -> None:
    assert parse_grammar(Raw(json.dumps(declaration).encode())) == grammar
    assert parse_grammar(UNSET) is None


STRICT = Raw(json.dumps(closed()).encode())
LOOSE = Raw(b'{"type":"object"}')


@pytest.mark.parametrize(
    ("dialect", "is_native", "in_family"),
    [("here", True, True), (None, True, True), ("beside", False, True), ("far", False, False)],
)
def test_a_family_is_the_wire_itself_its_sibling_and_nobodys_requests(
    dialect: str | None, is_native: bool, in_family: bool
) -> None:
    found = OpenAIFamilyOptions(Request("m", dialect=dialect), "here", "beside", Losses())
    assert (found.is_native, found.in_family) == (is_native, in_family)


MARKED = TextContent(
    "t", cache="1h", extra=Raw(b'{"prompt_cache_breakpoint":{"mode":"explicit","ttl":"30m"}}')
)


@pytest.mark.parametrize(
    ("dialect", "content", "mark", "outcomes"),
    [
        ("here", TextContent("t"), None, []),
        ("here", TextContent("t", cache="5m"), CacheBreakpoint("explicit"), []),
        ("beside", TextContent("t", cache="1h"), CacheBreakpoint("explicit", "12h"), []),
        ("beside", MARKED, CacheBreakpoint("explicit", "30m"), []),
        ("far", MARKED, CacheBreakpoint("explicit", "12h"), ["warned"]),
        ("far", TextContent("t", cache="5m"), CacheBreakpoint("explicit"), ["adapted"]),
    ],
)
def test_a_mark_is_kept_in_the_family_and_lasts_longer_for_others(
    dialect: str, content: TextContent, mark: CacheBreakpoint | None, outcomes: list[str]
) -> None:
    losses = Losses()
    options = OpenAIFamilyOptions(Request("m", dialect=dialect), "here", "beside", losses)
    assert options.breakpoint(content, "p") == mark
    assert [(loss.path, loss.outcome) for loss in losses.found] == [
        ("p.cache", outcome) for outcome in outcomes
    ]
    assert options.extras(content.extra) == (content.extra if dialect == "far" else UNSET)


@pytest.mark.parametrize(
    ("asked", "effort", "losses"),
    [
        (None, None, []),
        (
            ReasoningOptions("low", budget_tokens=9),
            "low",
            [Loss("reasoning.budget_tokens", "adapted", "9 tokens are effort low")],
        ),
        (ReasoningOptions(adaptive=True), None, []),
        (
            ReasoningOptions(budget_tokens=9),
            "max",
            [Loss("reasoning.budget_tokens", "adapted", "9 tokens are effort max")],
        ),
    ],
)
def test_a_budget_is_an_effort(
    asked: ReasoningOptions | None, effort: str | None, losses: list[Loss]
) -> None:
    found = Losses()
    options = OpenAIFamilyOptions(
        Request("m", dialect="far", reasoning=asked), "here", "beside", found
    )
    assert (options.effort(lambda budget: "max"), found.found) == (effort, losses)


@pytest.mark.parametrize(
    ("dialect", "output", "shape", "paths"),
    [
        ("beside", OutputFormat("json-schema", "n", schema=LOOSE), ("n", None), []),
        ("far", OutputFormat("json-schema", "n", schema=STRICT), ("n", True), []),
        ("far", OutputFormat("json-schema", "n", schema=STRICT, strict=False), ("n", False), []),
        ("far", OutputFormat("json-schema", "n", schema=LOOSE, strict=False), ("n", False), []),
        (
            "far",
            OutputFormat("json-schema", schema=LOOSE),
            ("output", False),
            ["output.schema", "output.name"],
        ),
    ],
)
def test_a_shape_has_a_name_and_is_enforced_where_it_can_be(
    dialect: str, output: OutputFormat, shape: tuple[str, bool | None], paths: list[str]
) -> None:
    losses = Losses()
    options = OpenAIFamilyOptions(
        Request("m", dialect=dialect, output=output), "here", "beside", losses
    )
    assert (options.output_format(), [loss.path for loss in losses.found]) == (shape, paths)


@pytest.mark.parametrize(
    ("dialect", "tool", "strict", "paths"),
    [
        ("far", Tool("f"), None, []),
        ("far", Tool("f", strict=False), False, []),
        ("far", Tool("f", parameters=STRICT, strict=True), True, []),
        ("far", Tool("f", parameters=LOOSE, strict=True), False, ["tools[0].strict"]),
        ("beside", Tool("f", parameters=LOOSE, strict=True), True, []),
    ],
)
def test_a_tool_is_strict_only_if_its_schema_can_be(
    dialect: str, tool: Tool, strict: bool | None, paths: list[str]
) -> None:
    losses = Losses()
    options = OpenAIFamilyOptions(Request("m", dialect=dialect), "here", "beside", losses)
    assert (options.strict(tool, "tools[0]"), [loss.path for loss in losses.found]) == (
        strict,
        paths,
    )


def far(**fields: object) -> tuple[OpenAIFamilyOptions, Losses]:
    losses = Losses()
    request = msgspec.structs.replace(Request("m", dialect="far"), **fields)
    return OpenAIFamilyOptions(request, "here", "beside", losses), losses


def told(losses: Losses) -> list[tuple[str, str]]:
    return [(loss.path, loss.outcome) for loss in losses.found]


def test_what_stands_beside_a_content_is_noted_also_inside_results() -> None:
    options, losses = far()
    beside = Raw(b'{"a":1}')
    inside = TextContent("t", extra=beside)
    options.report_extras(
        (inside, ResultContent("c", (inside,)), OpaqueContent("far", "x", beside)), "m"
    )
    assert told(losses) == [("m.content[0].a", "warned"), ("m.content[1].content[0].a", "warned")]


def test_the_mark_of_a_result_is_on_the_last_of_it_and_named_where_it_came_from() -> None:
    options, losses = far()
    last = LocatedContent("r.content[1]", TextContent("b", cache="5m"))
    first = LocatedContent("r.content[0]", TextContent("a"))
    marked = options.move_breakpoint("r", [first, last], "1h")
    assert marked == [first, LocatedContent("r.content[1]", TextContent("b", cache="1h"))]
    assert options.breakpoint(TextContent("b", cache="1h"), "r.content[1]") == CacheBreakpoint(
        "explicit", "12h"
    )
    assert options.move_breakpoint("q", [], "1h") == []
    assert options.move_breakpoint("q", [], None) == []
    assert told(losses) == [
        ("r.content[1].cache", "adapted"),
        ("r.cache", "warned"),
        ("q.cache", "warned"),
    ]


def test_a_choice_without_tools_is_left_out_and_said_unless_it_says_nothing() -> None:
    for choice, outcomes in ((ToolChoice(), []), (ToolChoice("none"), [("tool_choice", "warned")])):
        options, losses = far(tool_choice=choice)
        assert (options.renders_tool_choice(), told(losses)) == (False, outcomes)
    assert far(tool_choice=ToolChoice("none"), tools=(Tool("f"),))[0].renders_tool_choice()
    assert not far()[0].renders_tool_choice()


def test_an_address_does_not_say_what_is_there() -> None:
    options, losses = far()
    options.report_media_type(ImageContent("image/png", url="u"), "p")
    options.report_media_type(ImageContent("image/png", data="d"), "q")
    assert told(losses) == [("p.media_type", "adapted")]
