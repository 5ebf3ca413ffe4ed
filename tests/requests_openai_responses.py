"""Any Responses request that a client may send: `bodies()` draws whole conversations."""

from hypothesis import strategies as st

from tests.requests_openai_chat import ARGUMENTS, CLOSED, NAMES, SCHEMA, Object, some
from tests.strategies import TEXT

MARKS: st.SearchStrategy[Object] = st.sampled_from(
    [
        {},
        {"prompt_cache_breakpoint": {"mode": "explicit"}},
        {"prompt_cache_breakpoint": {"mode": "explicit", "ttl": "12h"}},
    ]
)
DONE: st.SearchStrategy[Object] = st.sampled_from([{}, {"status": "completed"}])


def texts() -> st.SearchStrategy[Object]:
    return st.builds(lambda text, mark: {"type": "input_text", "text": text, **mark}, TEXT, MARKS)


def parts() -> st.SearchStrategy[Object]:
    """A part of what a user says, or a tool answers."""
    others: list[Object] = [
        {"type": "input_image", "image_url": "https://a.example/b.png", "detail": "auto"},
        {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0=", "detail": "low"},
        {"type": "input_file", "file_url": "https://a.example/b.pdf"},
        {
            "type": "input_file",
            "file_data": "data:application/pdf;base64,JVBERi0=",
            "filename": "a.pdf",
        },
    ]
    marked = st.builds(lambda part, mark: {**part, **mark}, st.sampled_from(others), MARKS)
    return texts() | marked


@st.composite
def messages(draw: st.DrawFn, role: str, content: st.SearchStrategy[object]) -> Object:
    """A message in any of its forms."""
    form: Object = draw(st.sampled_from([{}, {"type": "message"}]))
    return {**form, "role": role, "content": draw(content)}


USERS = messages("user", TEXT | st.lists(parts(), min_size=1, max_size=3))
INSTRUCTIONS = st.one_of(
    *(
        messages(role, TEXT | st.lists(texts(), min_size=1, max_size=2))
        for role in ("system", "developer")
    )
)


@st.composite
def answers(draw: st.DrawFn, number: int) -> Object:
    """What the assistant said, as it was given or in a client's own words."""
    if draw(st.booleans()):
        return draw(messages("assistant", TEXT))
    said: list[Object] = [{"type": "output_text", "text": draw(TEXT), "annotations": []}]
    said += draw(st.sampled_from([[], [{"type": "refusal", "refusal": "No."}]]))
    more = draw(some(phase=st.sampled_from(["commentary", "final_answer"])))
    done: Object = {"type": "message", "id": f"msg_{number}", "status": "completed"}
    return {**done, "role": "assistant", "content": said, **more}


@st.composite
def thoughts(draw: st.DrawFn, number: int) -> Object:
    summary = draw(st.lists(st.sampled_from(["why", "because"]), max_size=2))
    return {
        "type": "reasoning",
        "id": f"rs_{number}",
        "summary": [{"type": "summary_text", "text": text} for text in summary],
        **draw(some(encrypted_content=st.just("gAAAA"))),
        **draw(DONE),
    }


@st.composite
def calls(draw: st.DrawFn, id: str) -> tuple[Object, Object]:
    """A call and its result."""
    said: Object = {"call_id": f"call_{id}", **draw(some(id=st.just(f"fc_{id}"))), **draw(DONE)}
    output = draw(TEXT | st.lists(parts(), min_size=1, max_size=2))
    answer: Object = {"call_id": f"call_{id}", "output": output}
    if draw(st.booleans()):
        free: Object = {"type": "custom_tool_call", "name": "write", "input": draw(TEXT)}
        return {**free, **said}, {"type": "custom_tool_call_output", **answer}
    call: Object = {"type": "function_call", "name": draw(NAMES), "arguments": draw(ARGUMENTS)}
    failed: Object = draw(st.sampled_from([{}, {}, {"status": "incomplete"}]))
    return {**call, **said}, {"type": "function_call_output", **answer, **failed}


@st.composite
def steps(draw: st.DrawFn, number: int) -> list[Object]:
    """What the assistant thinks, says and calls, and the results."""
    found: list[Object] = []
    found += [draw(thoughts(number))] if draw(st.booleans()) else []
    found += [draw(answers(number))] if draw(st.booleans()) else []
    pairs = [draw(calls(f"{number}_{place}")) for place in range(draw(st.integers(0, 3)))]
    return [*found, *(call for call, _ in pairs), *(result for _, result in pairs)]


@st.composite
def conversations(draw: st.DrawFn) -> list[Object]:
    """Instructions, then turns, each call answered; the user has the last word."""
    found = draw(st.lists(INSTRUCTIONS, max_size=2))
    for number in range(draw(st.integers(0, 3))):
        found += [draw(USERS), *draw(steps(number))]
    return [*found, draw(USERS)]


FUNCTIONS: st.SearchStrategy[Object] = st.builds(
    lambda name, more: {"type": "function", "name": name, **more},
    NAMES,
    some(
        description=TEXT,
        parameters=st.sampled_from([SCHEMA, CLOSED, None]),
        strict=st.sampled_from([None, False]),
    ),
)


@st.composite
def toolboxes(draw: st.DrawFn) -> Object:
    """Tools with a choice that fits them, or none."""
    tools = draw(
        st.lists(FUNCTIONS, min_size=1, max_size=3, unique_by=lambda one: str(one["name"]))
    )
    named = {"type": "function", "name": tools[0]["name"]}
    allowed = {"type": "allowed_tools", "mode": "required", "tools": [named]}
    choices = st.sampled_from(["auto", "none", "required", named, allowed])
    more = some(tool_choice=choices, parallel_tool_calls=st.booleans())
    custom: Object = {"type": "custom", "name": "write", "format": {"type": "text"}}
    return {"tools": [*tools, custom], **draw(more)}


FORMATS: st.SearchStrategy[object] = st.sampled_from(
    [
        {"format": {"type": "text"}},
        {"verbosity": "low"},
        {"format": {"type": "json_schema", "name": "s", "schema": CLOSED, "strict": True}},
        {"format": {"type": "json_schema", "name": "s", "schema": SCHEMA}, "verbosity": "high"},
    ]
)
EFFORTS = st.sampled_from(["none", "minimal", "low", "medium", "high", "xhigh", None])

OPTIONS = some(
    instructions=TEXT | st.none(),
    max_output_tokens=st.integers(16, 99) | st.none(),
    temperature=st.sampled_from([0, 0.5, 1, None]),
    top_p=st.sampled_from([0.1, 1]),
    text=FORMATS,
    stream=st.booleans(),
    reasoning=some(effort=EFFORTS, summary=st.sampled_from(["auto", "detailed", None])),
    include=st.sampled_from([[], ["reasoning.encrypted_content"]]),
    store=st.booleans(),
    truncation=st.just("disabled"),
    metadata=st.just({"k": "v"}),
    user=st.just("u1"),
    safety_identifier=st.just("s1"),
    prompt_cache_key=st.just("k1"),
    prompt_cache_retention=st.sampled_from(["in_memory", "24h"]),
    service_tier=st.sampled_from(["auto", "default", "flex", "priority"]),
)


def bodies() -> st.SearchStrategy[Object]:
    """Requests that every upstream of this dialect takes, in all the forms that clients use."""
    return st.builds(
        lambda said, tools, options: {"model": "m", "input": said, **tools, **options},
        TEXT | conversations(),
        st.just({}) | toolboxes(),
        OPTIONS,
    )


OWN_ITEMS: st.SearchStrategy[Object] = st.sampled_from(
    [
        {"type": "item_reference", "id": "msg_9"},
        {"id": "msg_9"},
        {"type": "compaction", "encrypted_content": "gAAAA"},
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"query": "q"}},
        {"type": "mcp_list_tools", "id": "l", "server_label": "s", "tools": []},
        {"type": "mcp_approval_response", "approval_request_id": "a", "approve": True},
        {"type": "shell_call_output", "call_id": "c", "output": []},
        {"type": "additional_tools", "role": "developer", "tools": []},
        {"type": "acme:thing", "id": "x", "status": "completed", "any": [1.50, None]},
        {"role": "user", "content": [{"type": "input_video", "video_url": "u"}]},
        {"role": "user", "content": "x", "status": "in_progress", "more": 1},
    ]
)
OWN_TOOLS: st.SearchStrategy[Object] = st.sampled_from(
    [
        {"type": "file_search", "vector_store_ids": ["v"]},
        {"type": "web_search", "filters": {"allowed_domains": ["a.example"]}},
        {"type": "web_search_preview_2025_03_11", "search_content_types": ["text"]},
        {"type": "code_interpreter", "container": {"type": "auto", "file_ids": ["f"]}},
        {"type": "mcp", "server_label": "s", "server_url": "u", "allowed_tools": ["t"]},
        {"type": "mcp", "server_label": "s", "allowed_tools": {"read_only": True}},
        {
            "type": "namespace",
            "name": "ns",
            "description": "d",
            "tools": [{"type": "function", "name": "f", "defer_loading": True}],
        },
    ]
)
OWN = some(
    background=st.booleans(),
    previous_response_id=st.just("resp_1"),
    max_tool_calls=st.integers(1, 3),
    top_logprobs=st.integers(0, 3),
    presence_penalty=st.just(0.5),
    conversation=st.sampled_from(["c", {"id": "c"}]),
    prompt=st.just({"id": "p"}),
    context_management=st.just([{"type": "compaction", "compact_threshold": 9}]),
    stream_options=st.just({"include_obfuscation": False}),
    tool_choice=st.sampled_from(
        [{"type": "file_search"}, {"type": "mcp", "server_label": "s", "name": "n"}]
    ),
    nobody_knows=st.just({"this": [1, 2.50, None]}),
)


@st.composite
def own_bodies(draw: st.DrawFn) -> Object:
    """Requests with what no other dialect can say."""
    body = {**draw(bodies()), **draw(OWN)}
    said, tools = body["input"], body.get("tools", [])
    assert isinstance(tools, list)
    if isinstance(said, list):
        body["input"] = [*said, *draw(st.lists(OWN_ITEMS, max_size=3))]
    return {**body, "tools": [*tools, *draw(st.lists(OWN_TOOLS, max_size=2, unique_by=str))]}
