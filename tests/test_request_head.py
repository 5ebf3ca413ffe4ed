"""Heads that two readers could read differently."""

from tests.tables import each_row
from weft.gateway.request_head import Headers, has_body, head_error, longest_line, without_upgrade

HOST = (b"host", b"a:80")
VERSION = "The HTTP version must be 1.1 or 1.0."
ONE_HOST = "The request must have exactly one Host header."
CHUNKED = "Transfer-Encoding must be chunked, once, and only in HTTP/1.1."
PROXY = "CONNECT is not supported: this server is not a proxy."
TARGET = "The request target must be a path, or a URL of the Host."


def coding(value: bytes) -> tuple[bytes, bytes]:
    return (b"transfer-encoding", value)


@each_row(
    "version, method, target, headers, wrong",
    [
        ("1.1", b"GET", b"/", [HOST], None),
        ("1.0", b"GET", b"/", [], None),
        ("1.0", b"GET", b"/", [HOST], None),
        ("0.9", b"GET", b"/", [HOST], VERSION),
        ("2.0", b"GET", b"/", [HOST], VERSION),
        ("1.1", b"GET", b"/", [], ONE_HOST),
        ("1.1", b"GET", b"/", [HOST, HOST], ONE_HOST),
        ("1.0", b"GET", b"/", [HOST, HOST], ONE_HOST),
        *(
            (
                "1.1",
                b"GET",
                b"/",
                [HOST, (name.lower().encode(), b"a"), (b"x", b""), (name.lower().encode(), value)],
                f"The request must have exactly one {name} header.",
            )
            for name in ("Authorization", "x-api-key", "x-goog-api-key", "Origin")
            for value in (b"a", b"b", b"")
        ),
        ("1.1", b"GET", b"/", [HOST, (b"cookie", b"a"), (b"cookie", b"b")], None),
        ("1.1", b"POST", b"/", [HOST, coding(b"chunked")], None),
        ("1.1", b"POST", b"/", [HOST, coding(b"Chunked")], None),
        ("1.0", b"POST", b"/", [HOST, coding(b"chunked")], CHUNKED),
        ("1.1", b"POST", b"/", [HOST, coding(b"gzip, chunked")], CHUNKED),
        ("1.1", b"POST", b"/", [HOST, coding(b"chunked"), coding(b"chunked")], CHUNKED),
        ("1.1", b"POST", b"/", [HOST, coding(b"chunked\t")], CHUNKED),
        ("1.1", b"POST", b"/", [HOST, coding(b"")], CHUNKED),
        ("1.1", b"CONNECT", b"a:80", [HOST], PROXY),
        ("1.1", b"OPTIONS", b"*", [HOST], None),
        ("1.1", b"GET", b"//evil/x", [HOST], None),
        ("1.1", b"GET", b"http://a:80/x", [HOST], None),
        ("1.1", b"GET", b"http://A:80/x", [HOST], None),
        ("1.1", b"GET", b"http://a:80", [HOST], TARGET),
        ("1.1", b"GET", b"http://a/x", [HOST], TARGET),
        ("1.1", b"GET", b"http://a:80@evil/x", [HOST], TARGET),
        ("1.1", b"GET", b"http://evil/x", [HOST], TARGET),
        ("1.1", b"GET", b"x", [HOST], TARGET),
        ("1.0", b"GET", b"http://a/x", [], TARGET),
    ],
)
def test_a_head_has_one_host_one_framing_and_one_target(
    version: str, method: bytes, target: bytes, headers: Headers, wrong: str | None
) -> None:
    assert head_error(version, method, target, headers) == wrong


def test_what_asks_for_an_upgrade_is_left_out_and_nothing_else() -> None:
    headers = [
        HOST,
        (b"connection", b"Upgrade, HTTP2-Settings, close"),
        (b"upgrade", b"h2c"),
        (b"http2-settings", b"AAMAAABkAAQAAP__"),
        (b"x", b""),
        (b"connection", b"upgrade"),
    ]
    assert without_upgrade(headers) == [HOST, (b"connection", b"close"), (b"x", b"")]


def test_a_body_is_told_by_its_framing() -> None:
    assert [has_body([HOST, (name, b"0")]) for name in (b"content-length", b"te")] == [True, False]
    assert has_body([coding(b"chunked")])


def test_the_longest_line_may_be_the_target() -> None:
    assert (longest_line(b"/" * 9, [HOST]), longest_line(b"/", [HOST]), longest_line(b"/", [])) == (
        9,
        8,
        1,
    )
