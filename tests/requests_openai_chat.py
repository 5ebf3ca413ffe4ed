"""Any Chat Completions request that a client may send: `bodies()` draws whole conversations."""

from hypothesis import strategies as st

from tests.strategies import TEXT

Object = dict[str, object]

NAMES = st.sampled_from(["look", "read_file", "w-1"])
ARGUMENTS = st.sampled_from(["{}", '{"b":1,"a":1.50}', '{"city":"Köln"}', "{"])
SCHEMA: Object = {
    "type": "object",
    "properties": {"b": {"type": "integer"}, "a": {"default": None}},
}
CLOSED: Object = {
    "type": "object",
    "properties": {"a": {"type": "string"}},
    "required": ["a"],
    "additionalProperties": False,
}
MARKS: st.SearchStrategy[Object] = st.sampled_from(
    [
        {},
        {"prompt_cache_breakpoint": {"mode": "explicit"}},
        {"prompt_cache_breakpoint": {"mode": "explicit", "ttl": "30m"}},
    ]
)


def some(**fields: st.SearchStrategy[object]) -> st.SearchStrategy[Object]:
    """Any of these keys, or none."""
    return st.fixed_dictionaries({}, optional=fields)


@st.composite
def parts(draw: st.DrawFn) -> Object:
    """A content part of a user message."""
    mark = draw(MARKS)
    kind = draw(st.sampled_from(["text", "image_url", "image_data", "input_audio", "file"]))
    bodies: dict[str, Object] = {
        "text": {"type": "text", "text": draw(TEXT)},
        "image_url": {"type": "image_url", "image_url": {"url": "https://a.example/b.png"}},
        "image_data": {
            "type": "image_url",
            "image_url": {"url": "data:image/png;base64,iVBORw0=", "detail": "low"},
        },
        "input_audio": {
            "type": "input_audio",
            "input_audio": {"data": "UklGRg==", "format": "wav"},
        },
        "file": {
            "type": "file",
            "file": {"file_data": "data:application/pdf;base64,JVBERi0=", "filename": "a.pdf"},
        },
    }
    return {**bodies[kind], **mark}


def texts() -> st.SearchStrategy[object]:
    """A string, or text parts."""
    part = st.builds(lambda text, mark: {"type": "text", "text": text, **mark}, TEXT, MARKS)
    return TEXT | st.lists(part, min_size=1, max_size=2)


def messages_of(role: str, content: st.SearchStrategy[object]) -> st.SearchStrategy[Object]:
    return st.builds(
        lambda body, more: {"role": role, "content": body, **more},
        content,
        some(name=st.just("bob")),
    )


USERS = messages_of("user", TEXT | st.lists(parts(), min_size=1, max_size=3))
INSTRUCTIONS = messages_of("system", texts()) | messages_of("developer", texts())


@st.composite
def calls(draw: st.DrawFn, id: str) -> Object:
    if draw(st.booleans()):
        free = {"name": "write", "input": draw(TEXT)}
        return {"id": id, "type": "custom", "custom": free}
    function = {"name": draw(NAMES), "arguments": draw(ARGUMENTS)}
    return {"id": id, "type": "function", "function": function}


@st.composite
def steps(draw: st.DrawFn, number: int) -> list[Object]:
    """A message of the assistant, perhaps with calls, and their results."""
    ids = [f"call_{number}_{place}" for place in range(draw(st.integers(0, 3)))]
    message: Object = {"role": "assistant"}
    if ids:
        message["tool_calls"] = [draw(calls(id)) for id in ids]
    choice = draw(st.sampled_from(["text", "parts", "refusal"] + ["nothing"] * bool(ids)))
    if choice == "text":
        message["content"] = draw(TEXT)
    elif choice == "parts":
        refusal = {"type": "refusal", "refusal": "No."}
        message["content"] = [{"type": "text", "text": draw(TEXT)}, refusal]
    else:
        message["content"] = None
        message |= {"refusal": "I cannot."} if choice == "refusal" else {}
    message |= draw(some(annotations=st.just([]), audio=st.none()))
    results: list[Object] = [
        {"role": "tool", "tool_call_id": id, "content": draw(texts())} for id in ids
    ]
    return [message, *results]


@st.composite
def conversations(draw: st.DrawFn) -> list[Object]:
    """Instructions, then turns with a result for each call; the last message is of the user."""
    found = draw(st.lists(INSTRUCTIONS, max_size=2))
    for number in range(draw(st.integers(0, 3))):
        found += [draw(USERS), *draw(steps(number))]
    return [*found, draw(USERS)]


FUNCTIONS: st.SearchStrategy[Object] = st.builds(
    lambda name, more: {"type": "function", "function": {"name": name, **more}},
    NAMES,
    some(
        description=TEXT,
        parameters=st.sampled_from([SCHEMA, CLOSED]),
        strict=st.sampled_from([None, False]),
    ),
)
CUSTOM: Object = {"type": "custom", "custom": {"name": "write", "format": {"type": "text"}}}


@st.composite
def toolboxes(draw: st.DrawFn) -> Object:
    """Tools with a choice that fits them, or none."""
    tools = draw(st.lists(FUNCTIONS, min_size=1, max_size=3, unique_by=str))
    names = [tool["function"]["name"] for tool in tools if isinstance(tool["function"], dict)]
    named = {"type": "function", "function": {"name": names[0]}}
    allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [named]}}
    choices = st.sampled_from(["auto", "none", "required", named, allowed])
    more = some(tool_choice=choices, parallel_tool_calls=st.booleans())
    return {"tools": [*tools, CUSTOM], **draw(more)}


FORMATS: st.SearchStrategy[object] = st.sampled_from(
    [
        {"type": "text"},
        {"type": "json_object"},
        {"type": "json_schema", "json_schema": {"name": "shape", "schema": CLOSED, "strict": True}},
        {"type": "json_schema", "json_schema": {"name": "shape", "schema": SCHEMA}},
    ]
)

OPTIONS = some(
    max_completion_tokens=st.integers(16, 99) | st.none(),
    temperature=st.sampled_from([0, 0.5, 1, None]),
    top_p=st.sampled_from([0.1, 1]),
    presence_penalty=st.just(0.5),
    seed=st.integers(0, 9),
    stop=TEXT | st.lists(TEXT, max_size=4) | st.none(),
    n=st.sampled_from([1, None]),
    response_format=FORMATS,
    stream=st.booleans(),
    stream_options=st.sampled_from([None, {"include_usage": True}]),
    reasoning_effort=st.sampled_from(["none", "minimal", "low", "medium", "high", "xhigh"]),
    verbosity=st.sampled_from(["low", "high"]),
    store=st.booleans(),
    metadata=st.just({"k": "v"}),
    user=st.just("u1"),
    safety_identifier=st.just("s1"),
    prompt_cache_key=st.just("k1"),
    prompt_cache_retention=st.sampled_from(["in_memory", "24h"]),
    service_tier=st.sampled_from(["auto", "default", "flex", "priority"]),
)


def bodies() -> st.SearchStrategy[Object]:
    """Requests that every upstream of this dialect accepts, in all the forms that clients use."""
    return st.builds(
        lambda messages, tools, options: {
            "model": "m",
            "messages": messages,
            **tools,
            **options,
        },
        conversations(),
        st.just({}) | toolboxes(),
        OPTIONS,
    )


OWN = some(
    max_tokens=st.integers(1, 9),
    logit_bias=st.just({"50256": -100}),
    web_search_options=st.sampled_from(
        [{}, {"user_location": {"type": "approximate", "approximate": {"city": "Köln"}}}]
    ),
    prediction=st.just({"type": "content", "content": "x"}),
    modalities=st.sampled_from([["text"], ["text", "audio"]]),
    audio=st.just({"voice": "ash", "format": "mp3"}),
    moderation=st.just({"model": "o"}),
    prompt_cache_options=st.just({"mode": "explicit"}),
    nobody_knows=st.just({"this": [1, 2.50, None]}),
    functions=st.just([{"name": "old", "parameters": SCHEMA}]),
    function_call=st.sampled_from(["auto", {"name": "old"}]),
)


def own_bodies() -> st.SearchStrategy[Object]:
    """Requests with fields that no other dialect has."""
    logprobs: Object = {"logprobs": True, "top_logprobs": 3}
    return st.builds(
        lambda body, own, more: {**body, **own, **more},
        bodies(),
        OWN,
        st.just({}) | st.just(logprobs),
    )


def leaves(value: object) -> list[str]:
    """Returns every string in a JSON value."""
    if isinstance(value, dict):
        return [text for inner in value.values() for text in leaves(inner)]
    if isinstance(value, list):
        return [text for inner in value for text in leaves(inner)]
    return [value] if isinstance(value, str) else []


def spoken_texts(value: object) -> list[str]:
    """Returns every text of a conversation: messages, arguments and results."""
    keys = ("text", "content", "refusal", "arguments", "input", "output")
    if isinstance(value, list):
        return [text for inner in value for text in spoken_texts(inner)]
    if not isinstance(value, dict):
        return []
    own = [value[key] for key in keys if isinstance(value.get(key), str)]
    return own + [text for inner in value.values() for text in spoken_texts(inner)]
