"""Valid bodies of generateContent: whole conversations, with all that belongs to them."""

from hypothesis import strategies as st

from tests.request_codecs import WORDS, Object, maybe
from tests.strategies import JSON

NAMES = st.sampled_from(["look", "read.file", "a:b", "_x"])
SIGNATURES = st.sampled_from(["c2ln", "b3RoZXI="])
ARGS: st.SearchStrategy[Object] = st.dictionaries(WORDS, JSON, max_size=2)


@st.composite
def texts(draw: st.DrawFn) -> Object:
    return {"text": draw(WORDS)}


MEDIA: st.SearchStrategy[Object] = st.sampled_from(
    [
        {"inlineData": {"mimeType": "image/png", "data": "AAAA"}},
        {
            "inlineData": {"mimeType": "image/png", "data": "AAAA", "displayName": "a.png"},
            "mediaResolution": {"level": "MEDIA_RESOLUTION_LOW"},
        },
        {"inlineData": {"mimeType": "application/pdf", "data": "JVBERi0="}},
        {"inlineData": {"mimeType": "audio/wav", "data": "AAAA"}},
        {"fileData": {"mimeType": "video/mp4", "fileUri": "https://a.example/v1beta/files/a"}},
        {
            "fileData": {"mimeType": "video/mp4", "fileUri": "gs://a/b"},
            "videoMetadata": {"fps": 1},
        },
        {"fileData": {"fileUri": "https://a.example/a.png", "mimeType": "image/png"}},
    ]
)
EXECUTED: st.SearchStrategy[Object] = st.sampled_from(
    [
        {"executableCode": {"language": "PYTHON", "code": "1"}},
        {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}},
        {"toolCall": {"id": "s1", "toolType": "GOOGLE_SEARCH_WEB", "args": {"queries": ["a"]}}},
        {"toolResponse": {"id": "s1", "toolType": "GOOGLE_SEARCH_WEB", "response": {}}},
        {"partOfTomorrow": {"a": 1}},
    ]
)


@st.composite
def spoken(draw: st.DrawFn) -> Object:
    """What the model says beside calls."""
    text = {"text": draw(WORDS | st.just(""))}
    return maybe(draw, text, thought=st.booleans(), thoughtSignature=SIGNATURES)


RESPONSES: st.SearchStrategy[Object] = st.one_of(
    st.builds(lambda text: {"output": text}, WORDS),
    st.builds(lambda text: {"error": text}, WORDS),
    st.sampled_from(
        [
            {"result": 5},
            {},
            {"output": '{"a":1}'},
            {"output": ""},
            {"error": {"message": "a"}},
            {"error": '{"error":1}'},
            {"output": "a", "error": None},
        ]
    ),
)


@st.composite
def steps(draw: st.DrawFn, number: int) -> list[Object]:
    """A turn of the model with calls, and the turn with their results."""
    said: list[Object] = draw(st.lists(spoken() | EXECUTED, max_size=2))
    answered: list[Object] = []
    for place in range(draw(st.integers(1, 3))):
        call: Object = {"name": draw(NAMES), "args": draw(ARGS)}
        result: Object = {"name": call["name"], "response": draw(RESPONSES)}
        if draw(st.booleans()):
            call["id"] = result["id"] = f"call_{number}_{place}"
        if draw(st.booleans()):
            result["parts"] = [draw(MEDIA)]
        part: Object = {"functionCall": call}
        said.append(maybe(draw, part, thoughtSignature=SIGNATURES) if place == 0 else part)
        answered.append({"functionResponse": result})
    answered += draw(st.lists(texts(), max_size=1))
    return [{"role": "model", "parts": said}, {"role": "user", "parts": answered}]


@st.composite
def conversations(draw: st.DrawFn) -> list[Object]:
    contents: list[Object] = []
    for number in range(draw(st.integers(1, 3))):
        asked = st.lists(texts() | MEDIA, min_size=1, max_size=3)
        contents.append({"role": "user", "parts": draw(asked)})
        if draw(st.booleans()):
            contents += draw(steps(number))
        said = st.lists(spoken() | EXECUTED, min_size=1, max_size=2)
        contents.append({"role": "model", "parts": draw(said)})
    if draw(st.booleans()):
        contents.append({"role": "user", "parts": [{"text": draw(WORDS)}]})
    return contents


@st.composite
def functions(draw: st.DrawFn) -> Object:
    function: Object = {"name": draw(NAMES)}
    schema = draw(
        st.sampled_from(
            [
                {},
                {"parametersJsonSchema": {"type": "object", "properties": {"a": {"const": 1}}}},
                {"parameters": {"type": "OBJECT", "properties": {"a": {"type": "STRING"}}}},
            ]
        )
    )
    return maybe(draw, function | schema, description=WORDS, behavior=st.just("BLOCKING"))


@st.composite
def toolboxes(draw: st.DrawFn) -> list[Object]:
    entries: list[Object] = []
    if draw(st.booleans()):
        declared = st.lists(functions(), min_size=1, max_size=3)
        entries.append({"functionDeclarations": draw(declared)})
    hosted: st.SearchStrategy[Object] = st.sampled_from(
        [
            {"googleSearch": {}},
            {"googleSearch": {"excludeDomains": ["a.example"]}},
            {"codeExecution": {}},
            {"urlContext": {}},
            {"googleMaps": {"enableWidget": True}},
            {"fileSearch": {"fileSearchStoreNames": ["a"]}},
            {"computerUse": {"environment": "ENVIRONMENT_BROWSER"}},
            {
                "mcpServers": [
                    {"name": "one", "streamableHttpTransport": {"url": "https://mcp.example"}}
                ]
            },
        ]
    )
    entries += draw(st.lists(hosted, max_size=2, unique_by=str))
    return entries or [{"googleSearch": {}}]


CALLING = st.sampled_from(
    [
        {"mode": "AUTO"},
        {"mode": "ANY"},
        {"mode": "ANY", "allowedFunctionNames": ["look"]},
        {"mode": "ANY", "allowedFunctionNames": ["look", "_x"]},
        {"mode": "NONE"},
        {"mode": "VALIDATED", "allowedFunctionNames": ["look"]},
    ]
)
SHAPES: st.SearchStrategy[Object] = st.sampled_from(
    [
        {"responseMimeType": "application/json"},
        {"responseMimeType": "application/json", "responseJsonSchema": {"type": "object"}},
        {"responseMimeType": "text/x.enum", "responseSchema": {"type": "STRING", "enum": ["a"]}},
        {},
    ]
)
THINKING = st.sampled_from(
    [
        {"includeThoughts": True},
        {"includeThoughts": False, "thinkingLevel": "LOW"},
        {"thinkingBudget": 0},
        {"thinkingBudget": -1, "includeThoughts": True},
        {"thinkingBudget": 4096},
        {"thinkingLevel": "HIGH"},
    ]
)


@st.composite
def configs(draw: st.DrawFn) -> Object:
    config: Object = dict(draw(SHAPES))
    if draw(st.booleans()):
        config |= {"responseLogprobs": True, "logprobs": draw(st.integers(1, 5))}
    maybe(
        draw,
        config,
        temperature=st.sampled_from([0.5, 1, 2]),
        topP=st.just(0.9),
        topK=st.integers(1, 40),
        candidateCount=st.integers(2, 3),
        maxOutputTokens=st.integers(1, 9),
        stopSequences=st.lists(WORDS, min_size=1, max_size=2),
        seed=st.integers(-5, 5),
        presencePenalty=st.just(0.1),
        frequencyPenalty=st.just(-0.1),
        thinkingConfig=THINKING,
        responseModalities=st.just(["TEXT", "IMAGE"]),
        speechConfig=st.just({"languageCode": "de-CH"}),
        mediaResolution=st.just("MEDIA_RESOLUTION_LOW"),
    )
    return config or {"temperature": 1}


@st.composite
def bodies(draw: st.DrawFn) -> Object:
    """A body that the wire takes."""
    return maybe(
        draw,
        {"contents": draw(conversations())},
        systemInstruction=st.builds(
            lambda parts: {"parts": parts}, st.lists(texts(), min_size=1, max_size=2)
        ),
        tools=toolboxes(),
        toolConfig=st.builds(lambda mode: {"functionCallingConfig": mode}, CALLING),
        generationConfig=configs(),
        safetySettings=st.just([{"category": "A", "threshold": "BLOCK_NONE"}]),
        cachedContent=st.just("cachedContents/a"),
        labels=st.just({"a": "b"}),
        serviceTier=st.just("flex"),
    )
