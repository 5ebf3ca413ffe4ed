"""Valid bodies of the Messages wire: whole conversations, with all that belongs to them."""

from typing import Any

from hypothesis import strategies as st

from tests.request_codecs import WORDS, Object, maybe
from tests.strategies import JSON

NAMES = st.sampled_from(["look", "read_file", "a-b", "web_search"])
CACHES = st.sampled_from(
    [{"type": "ephemeral"}, {"type": "ephemeral", "ttl": "5m"}, {"type": "ephemeral", "ttl": "1h"}]
)
SCHEMAS = st.sampled_from(
    [
        {"type": "object"},
        {"type": "object", "properties": {"a": {"type": ["string", "null"]}}, "required": ["a"]},
    ]
)
INPUTS: st.SearchStrategy[Object] = st.dictionaries(WORDS, JSON, max_size=2)


@st.composite
def texts(draw: st.DrawFn) -> Object:
    return maybe(draw, {"type": "text", "text": draw(WORDS)}, cache_control=CACHES)


SOURCES: dict[str, st.SearchStrategy[Object]] = {
    "url": st.just({"type": "url", "url": "https://a.example/a"}),
    "file": st.just({"type": "file", "file_id": "file_1"}),
    "png": st.just({"type": "base64", "media_type": "image/png", "data": "AAAA"}),
    "pdf": st.just({"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}),
    "text": st.builds(
        lambda data: {"type": "text", "media_type": "text/plain", "data": data}, WORDS
    ),
    "content": st.just({"type": "content", "content": [{"type": "text", "text": "a"}]}),
}


@st.composite
def images(draw: st.DrawFn) -> Object:
    source = draw(st.sampled_from(["url", "file", "png"]).flatmap(SOURCES.__getitem__))
    return maybe(draw, {"type": "image", "source": source}, cache_control=CACHES)


@st.composite
def documents(draw: st.DrawFn) -> Object:
    kinds = st.sampled_from(["url", "file", "pdf", "text", "content"])
    document = {"type": "document", "source": draw(kinds.flatmap(SOURCES.__getitem__))}
    return maybe(
        draw,
        document,
        title=WORDS,
        context=WORDS,
        citations=st.builds(lambda on: {"enabled": on}, st.booleans()),
        cache_control=CACHES,
    )


@st.composite
def found(draw: st.DrawFn) -> Object:
    result = {
        "type": "search_result",
        "title": draw(WORDS),
        "source": "https://a.example",
        "content": [{"type": "text", "text": draw(WORDS)}],
    }
    return maybe(draw, result, citations=st.just({"enabled": True}), cache_control=CACHES)


SHOWN = st.one_of(texts(), images(), documents(), found())
OWN = st.sampled_from(
    [
        {"type": "container_upload", "file_id": "file_2"},
        {"type": "a_block_of_tomorrow", "a": [1, {"b": 2}]},
    ]
)
THOUGHTS = st.one_of(
    st.builds(
        lambda text: {"type": "thinking", "thinking": text, "signature": "c2ln"},
        st.just("") | WORDS,
    ),
    st.just({"type": "redacted_thinking", "data": "b3BhcXVl"}),
)
SEARCHED: list[Object] = [
    {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "a"}},
    {
        "type": "web_search_tool_result",
        "tool_use_id": "srvtoolu_1",
        "content": [{"type": "web_search_result", "url": "https://a.example", "title": "a"}],
    },
]


@st.composite
def results(draw: st.DrawFn, id: str) -> Object:
    result = {"type": "tool_result", "tool_use_id": id}
    inside = st.one_of(
        texts(), images(), documents(), st.just({"type": "tool_reference", "tool_name": "look"})
    )
    content: st.SearchStrategy[Any] = WORDS | st.lists(inside, min_size=1, max_size=3)
    return maybe(draw, result, content=content, is_error=st.just(True), cache_control=CACHES)


@st.composite
def steps(draw: st.DrawFn, number: int) -> list[Object]:
    """A turn of the assistant with calls, and the turn with their results."""
    said: list[Object] = draw(st.lists(THOUGHTS, max_size=2))
    said += draw(st.lists(texts(), max_size=1))
    said += SEARCHED if draw(st.booleans()) else []
    ids = [f"toolu_{number}_{place}" for place in range(draw(st.integers(1, 3)))]
    for id in ids:
        use = {"type": "tool_use", "id": id, "name": draw(NAMES), "input": draw(INPUTS)}
        said.append(maybe(draw, use, caller=st.just({"type": "direct"}), cache_control=CACHES))
    answered: list[Object] = [draw(results(id)) for id in ids]
    answered += draw(st.lists(SHOWN, max_size=1))
    return [{"role": "assistant", "content": said}, {"role": "user", "content": answered}]


@st.composite
def conversations(draw: st.DrawFn) -> list[Object]:
    messages: list[Object] = []
    for number in range(draw(st.integers(1, 3))):
        asked = WORDS | st.lists(SHOWN | OWN, min_size=1, max_size=3)
        messages.append({"role": "user", "content": draw(asked)})
        if draw(st.booleans()):
            messages += draw(steps(number))
        if draw(st.booleans()):
            messages.append({"role": "system", "content": draw(WORDS)})
        answer = st.lists(texts(), min_size=1, max_size=2)
        messages.append({"role": "assistant", "content": draw(WORDS | answer)})
    if draw(st.booleans()):
        messages.append({"role": "user", "content": draw(WORDS)})
    return messages


@st.composite
def custom_tools(draw: st.DrawFn) -> Object:
    tool = {"name": draw(NAMES), "input_schema": draw(SCHEMAS)}
    return maybe(
        draw,
        tool,
        type=st.just("custom"),
        description=WORDS,
        strict=st.booleans(),
        eager_input_streaming=st.booleans(),
        input_examples=st.just([{"a": 1}]),
        cache_control=CACHES,
    )


@st.composite
def searches(draw: st.DrawFn) -> Object:
    tool = {"type": "web_search_20260209", "name": "web_search"}
    return maybe(
        draw,
        tool,
        allowed_domains=st.just(["a.example"]),
        max_uses=st.integers(1, 5),
        user_location=st.just({"type": "approximate", "city": "Bern"}),
        allowed_callers=st.just(["direct"]),
    )


OTHER_TOOLS = st.sampled_from(
    [
        {"type": "bash_20250124", "name": "bash"},
        {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"},
        {"type": "code_execution_20260120", "name": "code_execution"},
        {"type": "web_fetch_20260309", "name": "web_fetch", "citations": {"enabled": True}},
        {"type": "browser_toolset_20260801"},
        {"type": "mcp_toolset", "mcp_server_name": "one", "default_config": {"enabled": True}},
    ]
)
CHOICES = st.sampled_from(
    [
        {"type": "auto"},
        {"type": "any", "disable_parallel_tool_use": True},
        {"type": "auto", "disable_parallel_tool_use": False},
        {"type": "tool", "name": "look"},
        {"type": "none"},
    ]
)
THINKING = st.sampled_from(
    [
        {"type": "adaptive"},
        {"type": "adaptive", "display": "omitted"},
        {"type": "enabled", "budget_tokens": 2048, "display": "summarized"},
        {"type": "disabled"},
        {"type": "between_tools"},
    ]
)
OUTPUTS = st.sampled_from(
    [
        {"effort": "low"},
        {"effort": "max", "task_budget": {"type": "tokens", "total": 9}},
        {"format": {"type": "json_schema", "schema": {"type": "object", "properties": {}}}},
    ]
)
SERVERS = st.just([{"type": "url", "name": "one", "url": "https://mcp.example"}])


@st.composite
def bodies(draw: st.DrawFn) -> Object:
    """A body that the wire takes."""
    body: Object = {
        "model": "claude-a",
        "max_tokens": draw(st.integers(0, 100_000)),
        "messages": draw(conversations()),
    }
    return maybe(
        draw,
        body,
        system=WORDS | st.lists(texts(), min_size=1, max_size=3),
        tools=st.lists(
            st.one_of(custom_tools(), searches(), OTHER_TOOLS),
            min_size=1,
            max_size=4,
            unique_by=lambda tool: tool.get("mcp_server_name") or str(tool),
        ),
        mcp_servers=SERVERS,
        tool_choice=CHOICES,
        thinking=THINKING,
        output_config=OUTPUTS,
        stop_sequences=st.lists(WORDS, min_size=1, max_size=2),
        temperature=st.sampled_from([0.5, 1]),
        top_k=st.integers(1, 9),
        metadata=st.just({"user_id": "u1"}),
        service_tier=st.sampled_from(["auto", "standard_only"]),
        cache_control=CACHES,
        container=st.just("container_1"),
        context_management=st.just({"edits": [{"type": "clear_tool_uses_20250919"}]}),
        stream=st.just(True),
    )
