"""What the row of a dialect says of it over HTTP."""

import msgspec
import pytest

from weft.context import Quirks
from weft.dialects import DIALECTS, KEY_HEADERS, dialect_of, http_of
from weft.errors import InternalError
from weft.gateway.auth import request_keys
from weft.gateway.request_head import head_error
from weft.gateway.settings.upstreams import RESERVED_HEADERS

CHAT, RESPONSES = "openai-chat", "openai-responses"
MESSAGES, GEMINI = "anthropic-messages", "gemini"
VERSION = {b"anthropic-version": b"2023-06-01"}


def test_whoever_can_be_asked_says_how() -> None:
    asked = {name for name, dialect in DIALECTS.items() if dialect.request is not None}
    assert {name for name, dialect in DIALECTS.items() if dialect.http is not None} == asked
    assert DIALECTS["ai-sdk"].quirks().__class__ is Quirks  # and nothing to set
    with pytest.raises(InternalError, match="ai-sdk has no HTTP API"):
        http_of("ai-sdk")


def test_the_headers_of_keys_are_those_of_the_rows() -> None:
    """Nobody may set them in weft.toml or send one twice, and clients of any dialect use any."""
    assert KEY_HEADERS == {"authorization": "Bearer ", "x-api-key": "", "x-goog-api-key": ""}
    for name in KEY_HEADERS:
        found = head_error("1.1", b"GET", b"/", [(b"host", b"a"), *[(name.encode(), b"k")] * 2])
        assert found is not None
        assert name in found.lower()
    assert set(KEY_HEADERS) <= RESERVED_HEADERS
    sent = {name.encode(): f"{scheme}{name}".encode() for name, scheme in KEY_HEADERS.items()}
    assert request_keys(sent) == {name.encode() for name in KEY_HEADERS}


@pytest.mark.parametrize(
    ("path", "headers", "dialect"),
    [
        ("/v1/chat/completions", {}, CHAT),
        ("/v1/chat/completions", VERSION, CHAT),
        ("/v1/responses/resp_1/cancel", {}, RESPONSES),
        ("/v1/conversations", {}, RESPONSES),
        ("/v1/messages/count_tokens", {}, MESSAGES),
        ("/v1beta/models/m:generateContent", {}, GEMINI),
        ("/v1beta/models", VERSION, GEMINI),
        ("/v1/models", {}, CHAT),
        ("/v1/models/chat/m", VERSION, MESSAGES),
        ("/health", {}, CHAT),
        ("", {}, CHAT),
    ],
)
def test_a_path_tells_the_dialect_of_a_client(
    path: str, headers: dict[bytes, bytes], dialect: str
) -> None:
    assert dialect_of(path, headers) == dialect


@pytest.mark.parametrize(
    ("dialect", "stream", "path"),
    [
        (CHAT, True, "/chat/completions"),
        (RESPONSES, True, "/responses"),
        (MESSAGES, False, "/v1/messages"),
        (GEMINI, True, "/v1beta/models/a%2Fb:streamGenerateContent?alt=sse"),
        (GEMINI, False, "/v1beta/models/a%2Fb:generateContent"),
    ],
)
def test_where_a_model_is_asked(dialect: str, stream: bool, path: str) -> None:
    assert http_of(dialect).path("a%2Fb", stream) == path


@pytest.mark.parametrize(
    ("dialect", "listed"),
    [
        (
            CHAT,
            {
                "object": "list",
                "data": [
                    {"id": "up/m", "owned_by": "up", "object": "model", "created": 0},
                    {"id": "fast", "owned_by": "weft", "object": "model", "created": 0},
                ],
            },
        ),
        (
            MESSAGES,
            {
                "data": [
                    {
                        "id": name,
                        "display_name": name,
                        "type": "model",
                        "created_at": "1970-01-01T00:00:00Z",
                    }
                    for name in ("up/m", "fast")
                ],
                "has_more": False,
                "first_id": "up/m",
                "last_id": "fast",
            },
        ),
        (
            GEMINI,
            {
                "models": [
                    {
                        "name": f"models/{name}",
                        "displayName": name,
                        "supportedGenerationMethods": ["generateContent", "streamGenerateContent"],
                    }
                    for name in ("up/m", "fast")
                ]
            },
        ),
    ],
)
def test_models_are_listed_as_its_clients_read_them(dialect: str, listed: object) -> None:
    listing, names = http_of(dialect).models, ["up/m", "fast"]
    assert listing is not None
    written = listing.all([listing.one(name, None) for name in names], names)
    assert msgspec.json.decode(msgspec.json.encode(written)) == listed


def test_a_page_of_no_models_has_no_ends() -> None:
    listing = http_of(MESSAGES).models
    assert listing is not None
    assert listing.all([], []) == {
        "data": [], "has_more": False, "first_id": None, "last_id": None
    }  # fmt: skip
