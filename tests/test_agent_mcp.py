"""MCP servers as real processes, over both transports: well-behaved, dying, slow and lying."""

import asyncio
import http.server
import logging
import os
import re
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import QUICK
from weft.agent.mcp import McpClient, McpTool, tool_name
from weft.agent.mcp_addresses import Resolver, system_resolver
from weft.agent.mcp_config import MAX_MESSAGE, ConnectionLoss, McpServerConfig, McpUnavailable
from weft.agent.mcp_stdio import GRACE, stdio_transport
from weft.agent.tool_spec import (
    TOOL_NAME,
    Ambiguous,
    AnyOutcome,
    Changed,
    Finished,
    Unknown,
    failed,
)
from weft.agent.tools import BadArguments, ToolContext
from weft.errors import ArgumentValueError, InternalError
from weft.request import FileContent, ImageContent, TextContent

HERE = Path(__file__).parent
SERVER = (sys.executable, str(HERE / "agent_mcp_server.py"))
MISBEHAVING = (sys.executable, str(HERE / "agent_mcp_misbehaving.py"))
HTTP = ("http", "http-json", pytest.param("http-stateless", marks=pytest.mark.long))
TRANSPORTS = ("stdio", *HTTP)
BOTH = ("stdio", "http")
MOSTLY_STDIO = ("stdio", pytest.param("http", marks=pytest.mark.long))
"""What does not depend on the transport: `make test` has one of them, `make test-long` both."""


class HttpServer:
    """The test server as a process that listens."""

    def __init__(self, transport: str, port: int = 0) -> None:
        self.process = subprocess.Popen(
            [*SERVER, transport, "--port", str(port)], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()
        self.port = int(self.url.rpartition(":")[2].partition("/")[0])

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@contextmanager
def configured(transport: str, **options: Any) -> Iterator[McpServerConfig]:
    if transport == "stdio":
        yield McpServerConfig(name="test", command=(*SERVER, "stdio"), **options)
        return
    server = HttpServer(transport)
    try:
        yield McpServerConfig(name="test", url=server.url, **options)
    finally:
        server.close()


def on(
    transport: str, test: Callable[[McpClient, dict[str, McpTool]], Awaitable[None]], **options: Any
) -> None:
    """Runs a test with a connected server and its tools, by their names there."""

    async def connected() -> None:
        with configured(transport, **options) as config:
            async with McpClient(config) as server:
                await test(server, await tools_of(server))

    asyncio.run(connected())


async def tools_of(server: McpClient) -> dict[str, McpTool]:
    return {tool.spec.name.partition("__")[2]: tool for tool in await server.tools()}


def misbehaving(how: str, **options: Any) -> McpServerConfig:
    return McpServerConfig(name="test", command=(*MISBEHAVING, how), **options)


async def call(tool: McpTool, arguments: str = "{}", **context: Any) -> AnyOutcome:
    return await tool.call(tool.decode(arguments), ToolContext("run_1", "call_1", **context))


class Begun:
    """Waits until a tool reports that it has begun."""

    def __init__(self) -> None:
        self.event = asyncio.Event()

    async def __call__(self, text: str) -> None:
        self.event.set()


def finished(text: str) -> Finished:
    return Finished((TextContent(text),))


# Well-behaved servers


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_tools_are_listed_and_called(transport: str) -> None:
    async def test(server: McpClient, tools: dict[str, McpTool]) -> None:
        spec = tools["add"].spec
        assert (spec.name, spec.kind, spec.server) == ("test__add", "mcp", "test")
        assert (spec.description, spec.retry, spec.timeout) == ("Add two numbers.", "once", 60.0)
        schema = msgspec.json.decode(spec.parameters)
        assert schema["required"] == ["a", "b"]
        progress: list[str] = []

        async def report(text: str) -> None:
            progress.append(text)

        outcome = await call(tools["add"], '{"a":1,"b":2}', report=report)
        assert outcome == finished("3")
        # In JSON mode a response has no room for more than the answer.
        expected = (
            [] if transport == "http-json" else ['{"progress":1.0,"total":2.0,"message":"half"}']
        )
        assert progress == expected
        assert await call(tools["look"]) == finished("run_1/call_1")
        assert await tools["look"].lookup(ToolContext("run_1", "call_1")) == Unknown(
            "an MCP server cannot be asked about an earlier call"
        )

    on(transport, test)


@pytest.mark.long
@pytest.mark.parametrize("transport", BOTH)
def test_errors_of_tools_are_answers(transport: str) -> None:
    async def test(server: McpClient, tools: dict[str, McpTool]) -> None:
        # The package does not tell clients what the exception was.
        assert await call(tools["fail"]) == failed("Error executing tool fail")
        outcome = await call(tools["add"], '{"a":"one"}')
        assert isinstance(outcome, Finished)
        assert outcome.is_error
        assert await call(tools["ask"]) == failed(
            "the tool asks for input from a person, which is not supported"
        )

    on(transport, test)


def test_contents_are_carried_over() -> None:
    async def test(server: McpClient, tools: dict[str, McpTool]) -> None:
        assert await call(tools["everything"]) == Finished(
            (
                TextContent("see"),
                ImageContent("image/png", "aGk="),
                TextContent("[image/png: the data is not valid base64]"),
                FileContent("audio/wav", "aGk="),
                TextContent("a text"),
                FileContent("application/pdf", "aGk="),
                TextContent("page: https://example.com/page"),
            )
        )
        assert await call(tools["structured"]) == finished('{"sum":3}')

    on("stdio", test)


@pytest.mark.parametrize("transport", MOSTLY_STDIO)
def test_calls_run_beside_one_another(transport: str) -> None:
    async def test(server: McpClient, tools: dict[str, McpTool]) -> None:
        sums = [call(tools["add"], f'{{"a":{n},"b":{n}}}') for n in range(20)]
        assert await asyncio.gather(*sums) == [finished(str(2 * n)) for n in range(20)]

    on(transport, test)


def test_only_what_is_allowed_can_be_used(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        with configured("http") as config:
            async with McpClient(config) as server:
                add = (await tools_of(server))["add"]
            allowing = McpServerConfig(name="test", url=config.url, allow=("look", "no_such"))
            async with McpClient(allowing) as server:
                assert list(await tools_of(server)) == ["look"]
                # A run that began under the old settings is held to the new ones.
                outcome = await call(McpTool(server, add.spec), '{"a":1,"b":2}')
                assert outcome == failed("the settings do not allow tool 'add'")

    asyncio.run(test())
    assert "MCP server test has no tool 'no_such', which is allowed" in caplog.text


@pytest.mark.parametrize("trusted", [True, False])
def test_hints_count_only_if_the_settings_trust_them(trusted: bool) -> None:
    async def test(server: McpClient, tools: dict[str, McpTool]) -> None:
        classes = {name: tools[name].spec.retry for name in ("look", "hang", "add")}
        hinted = {"look": "pure", "hang": "idempotent", "add": "once"}
        assert classes == (hinted if trusted else dict.fromkeys(hinted, "once"))

    on("stdio", test, trust_hints=trusted)


def test_the_environment_is_what_is_listed_and_nothing_else() -> None:
    async def test(server: McpClient, tools: dict[str, McpTool]) -> None:
        outcome = await call(tools["environment"])
        assert isinstance(outcome, Finished)
        # Python itself sets LC_CTYPE in the C locale.
        assert set(outcome.text.splitlines()) - {"LC_CTYPE"} == {"TOKEN"}

    on("stdio", test, env={"TOKEN": "secret"})


@pytest.mark.long
def test_headers_reach_the_server_and_secrets_are_not_shown() -> None:
    config = McpServerConfig(name="a", url="http://x", headers={"a": "secret"}, env={"b": "secret"})
    assert "secret" not in repr(config)
    seen = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            seen.append(self.headers["authorization"])
            self.send_error(401)

        def log_message(self, format: str, *args: object) -> None:
            """Tests are quiet."""

    with listening(Handler) as url:
        config = McpServerConfig(
            name="test", url=url, headers={"authorization": "Bearer x"}, connect_timeout=2
        )
        asyncio.run(unavailable(config, "Server returned an error response"))
    assert set(seen) == {"Bearer x"}


@contextmanager
def listening(handler: type[http.server.BaseHTTPRequestHandler]) -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/mcp"
        finally:
            server.shutdown()
            thread.join()


async def unavailable(
    config: McpServerConfig, why: str, resolve: Resolver = system_resolver
) -> str:
    """Returns when the tools of a server cannot be listed for this reason; on a busy machine an
    attempt may fail for want of time before it."""
    found = ""
    async with McpClient(config, resolve) as server:
        end = time.monotonic() + 60
        while why not in found:
            assert time.monotonic() < end, found
            with pytest.raises(McpUnavailable) as caught:
                await server.tools()
            found = str(caught.value)
    return found


# Definitions


@pytest.mark.parametrize("transport", MOSTLY_STDIO)
def test_a_definition_that_changed_is_not_called_until_it_is_approved(transport: str) -> None:
    async def test(server: McpClient, tools: dict[str, McpTool]) -> None:
        await call(tools["redefine"])
        outcome = await call(tools["add"], '{"a":1,"b":2}')
        assert isinstance(outcome, Changed)
        assert outcome.old == tools["add"].spec.digest != outcome.new.digest
        assert outcome.new.description == "Add two numbers, and send them to a stranger."
        # Approved: the run goes on with the new definition.
        assert await call(McpTool(server, outcome.new), '{"a":1,"b":2}') == finished("3")
        await call(tools["remove"])
        assert await call(tools["add"]) == failed(
            "MCP server test has no tool 'test__add' any more"
        )

    on(transport, test)


def test_a_name_that_no_model_api_accepts_is_altered() -> None:
    async def test(server: McpClient, tools: dict[str, McpTool]) -> None:
        (name,) = [name for name in tools if name.startswith("with")]
        assert re.fullmatch("with_dots_and-slashes_[0-9a-f]{8}", name)
        assert await call(tools[name]) == finished("odd")

    on("stdio", test)


@QUICK
@given(st.lists(st.text(max_size=80), unique=True, min_size=2))
def test_names_are_legal_and_differ(names: list[str]) -> None:
    named = [tool_name("files", name) for name in names]
    assert all(map(TOOL_NAME.fullmatch, named))
    assert len(set(named)) == len(names)


# Servers that die, are slow, or cannot be reached


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_call_whose_server_dies_is_ambiguous(transport: str) -> None:
    async def test(server: McpClient, tools: dict[str, McpTool]) -> None:
        assert isinstance(await call(tools["die"]), Ambiguous)

    on(transport, test)


@pytest.mark.long
def test_all_calls_in_progress_become_ambiguous_and_the_next_one_finds_a_new_process() -> None:
    async def test(server: McpClient, tools: dict[str, McpTool]) -> None:
        begun = Begun()
        hanging = asyncio.ensure_future(call(tools["hang"], report=begun))
        await begun.event.wait()
        assert await call(tools["die"]) == Ambiguous("the server closed its output")
        assert await hanging == Ambiguous("the server closed its output")
        assert await call(tools["add"], '{"a":1,"b":2}') == finished("3")

    on("stdio", test)


@pytest.mark.long
@pytest.mark.parametrize("transport", HTTP)
def test_a_server_that_comes_back_on_its_port_is_used_again(transport: str) -> None:
    async def test() -> None:
        reserved = socket.socket()  # so that nobody else gets the port meanwhile
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("127.0.0.1", 0))
        first = HttpServer(transport, reserved.getsockname()[1])
        second = None
        try:
            config = McpServerConfig(name="test", url=first.url, connect_timeout=20)
            async with McpClient(config) as server:
                add = (await tools_of(server))["add"]
                first.close()
                # Nobody listens: it is certain that the call was not executed.
                outcome = await call(add, '{"a":1,"b":2}')
                assert isinstance(outcome, Finished)
                assert outcome.is_error
                assert "cannot connect" in outcome.text
                assert outcome.text.endswith("; the call was not sent")
                second = HttpServer(transport, first.port)
                # The new process does not know the session, which is not the model's problem.
                assert await call(add, '{"a":1,"b":2}') == finished("3")
        finally:
            if second is not None:
                second.close()
            reserved.close()

    asyncio.run(test())


@pytest.mark.long
@pytest.mark.parametrize("transport", BOTH)
def test_a_call_that_is_late_is_ambiguous_and_does_not_disturb_others(transport: str) -> None:
    async def test(server: McpClient, tools: dict[str, McpTool]) -> None:
        hanging = McpTool(server, msgspec.structs.replace(tools["hang"].spec, timeout=2))
        late, answered = await asyncio.gather(call(hanging), call(tools["add"], '{"a":1,"b":2}'))
        assert late == Ambiguous("MCP server test: no answer within 2 s; the call was sent")
        assert answered == finished("3")
        assert await call(tools["add"], '{"a":2,"b":2}') == finished("4")

    on(transport, test)


@pytest.mark.long
@pytest.mark.parametrize("transport", BOTH)
def test_cancellation_passes_through(transport: str) -> None:
    async def test(server: McpClient, tools: dict[str, McpTool]) -> None:
        begun = Begun()
        hanging = asyncio.ensure_future(call(tools["hang"], report=begun))
        await begun.event.wait()
        hanging.cancel()
        with pytest.raises(asyncio.CancelledError):
            await hanging
        assert await call(tools["add"], '{"a":1,"b":2}') == finished("3")

    on(transport, test)


@pytest.mark.long
@pytest.mark.parametrize("transport", BOTH)
def test_calls_in_progress_become_ambiguous_when_the_server_is_closed(transport: str) -> None:
    async def test() -> None:
        begun = Begun()
        with configured(transport) as config:
            async with McpClient(config) as server:
                hang = (await tools_of(server))["hang"]
                hanging = asyncio.ensure_future(call(hang, report=begun))
                await begun.event.wait()
            assert isinstance(await hanging, Ambiguous)
            outcome = await call(hang)
            assert isinstance(outcome, Finished)
            assert outcome.text.endswith("; the call was not sent")

    asyncio.run(test())


def test_a_call_before_the_start_is_not_sent() -> None:
    async def test() -> None:
        server = McpClient(misbehaving("plain"))
        with pytest.raises(McpUnavailable, match="MCP server test: not connected: not started"):
            await server.tools()

    asyncio.run(test())


@pytest.mark.long
@pytest.mark.parametrize(
    ("config", "why"),
    [
        (
            McpServerConfig(name="test", command=("/no/such/program",), connect_timeout=0.2),
            "FileNotFoundError: [Errno 2] No such file or directory: '/no/such/program'",
        ),
        (misbehaving("silent", connect_timeout=0.5), "no connection within 0.5 s"),
        (misbehaving("exiting", connect_timeout=3), "the server closed its output"),
        (
            misbehaving("invalid-list"),
            "its list of tools is not valid: Input should be 'object' at tools.1.inputSchema.type",
        ),
        (
            McpServerConfig(name="test", url="http://127.0.0.1:1/mcp", connect_timeout=0.5),
            "cannot connect: All connection attempts failed",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_server_that_cannot_be_used_says_why(config: McpServerConfig, why: str) -> None:
    asyncio.run(unavailable(config, why))


# Servers that misbehave


def outcome_of(how: str, **options: Any) -> AnyOutcome:
    async def test() -> AnyOutcome:
        async with McpClient(misbehaving(how, **options)) as server:
            (tool,) = await server.tools()
            return await call(tool)

    return asyncio.run(test())


def test_what_a_server_prints_beside_its_messages_is_skipped() -> None:
    assert outcome_of("printing") == finished("ok")


def test_a_result_that_fits_no_schema_is_still_the_result(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert outcome_of("lying") == finished("1")
    warnings = [one.getMessage() for one in caplog.records if one.name == "weft.agent.mcp"]
    assert warnings == ["tool test__lie is listed twice; the first one counts"]


def test_a_result_that_cannot_be_read_says_that_the_tool_was_executed() -> None:
    outcome = outcome_of("invalid-result")
    assert isinstance(outcome, Finished)
    assert outcome.is_error
    assert outcome.text.startswith("the tool was executed, but the result of the server is not")


def test_an_error_of_the_protocol_is_an_answer() -> None:
    assert outcome_of("error") == failed("error -32042: out of order")


@pytest.mark.long
def test_a_message_without_end_costs_the_connection_and_not_the_memory() -> None:
    why = f"the server sent a message of more than {MAX_MESSAGE} bytes"
    assert outcome_of("flooding") == Ambiguous(why)


@pytest.mark.long
def test_a_server_that_closes_its_output_is_lost() -> None:
    assert outcome_of("closing-output") == Ambiguous("the server closed its output")


def test_a_list_without_end_is_cut() -> None:
    async def test() -> int:
        async with McpClient(misbehaving("endless-list")) as server:
            return len(await server.tools())

    assert asyncio.run(test()) == 100


@pytest.mark.long
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_large_result_arrives_and_a_huge_one_is_ambiguous(transport: str) -> None:
    async def test(server: McpClient, tools: dict[str, McpTool]) -> None:
        size = MAX_MESSAGE - 4096
        assert await call(tools["large"], f'{{"size":{size}}}') == finished("x" * size)
        outcome = await call(tools["large"], f'{{"size":{MAX_MESSAGE}}}')
        assert isinstance(outcome, Ambiguous)
        assert await call(tools["add"], '{"a":1,"b":2}') == finished("3")

    on(transport, test)


class Proxy(http.server.BaseHTTPRequestHandler):
    """A server of 2025 with sessions, behind a proxy that fails in the middle of a call: the
    query of the URL says how."""

    forgotten: ClassVar[set[str]] = set()
    """Sessions that the server does not know any more."""
    RESULTS: ClassVar[dict[str, Any]] = {
        "initialize": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "serverInfo": {"name": "a", "version": "1"},
        },
        "tools/list": {"tools": [{"name": "act", "inputSchema": {"type": "object"}}]},
    }

    def do_POST(self) -> None:
        request = msgspec.json.decode(self.rfile.read(int(self.headers["content-length"])))
        method = request["method"]
        if self.headers["mcp-session-id"] in self.forgotten:
            self.answer(404, "text/plain", b"")
            self.forgotten.clear()
        elif method in self.RESULTS:
            answer = {"jsonrpc": "2.0", "id": request["id"], "result": self.RESULTS[method]}
            self.answer(200, "application/json", msgspec.json.encode(answer))
        elif method == "tools/call":
            self.fail(self.path.partition("?")[2])
        else:
            self.answer(404 if "id" in request else 202, "text/plain", b"")

    def do_GET(self) -> None:
        self.answer(405, "text/plain", b"")

    do_DELETE = do_GET  # noqa: N815

    def fail(self, how: str) -> None:
        match how:
            case "bad-gateway":
                self.answer(502, "text/html", b"<h1>Bad Gateway</h1>")
            case "sign-in":
                self.answer(200, "text/html", b"<h1>Sign in</h1>")
            case "not-json":
                self.answer(200, "application/json", b"<h1>Sorry</h1>")
            case "cut":
                self.answer(200, "application/json", b'{"jsonrpc"', length=100)
            case "cut-stream":
                self.answer(200, "text/event-stream", b"data: {", length=100)
            case "accepted":
                self.answer(202, "text/plain", b"")
            case "session-ended":
                self.answer(404, "text/plain", b"")
            case "nothing":
                pass
        self.close_connection = True

    def answer(self, status: int, kind: str, body: bytes, length: int | None = None) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("mcp-session-id", "session")
        self.send_header("content-length", str(len(body) if length is None else length))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Tests are quiet."""


@pytest.mark.long
@pytest.mark.parametrize(
    ("how", "outcome"),
    [
        ("bad-gateway", Ambiguous("HTTP status 502")),
        ("sign-in", Ambiguous("Unexpected content type: text/html")),
        ("not-json", None),
        ("cut", None),
        ("cut-stream", Ambiguous("SSE stream ended without a response")),
        ("accepted", Ambiguous("server answered a request with 202 Accepted")),
        ("nothing", None),
        (
            "session-ended",
            failed("MCP server test: Session terminated; the call was not sent"),
        ),
    ],
)
def test_what_the_server_did_not_answer_itself_is_ambiguous(
    how: str, outcome: AnyOutcome | None
) -> None:
    async def test(url: str) -> AnyOutcome:
        async with McpClient(McpServerConfig(name="test", url=url)) as server:
            (tool,) = await server.tools()
            found = await call(tool)
            # Whatever it was, it does not cost the connection.
            assert len(await server.tools()) == 1
            return found

    with listening(Proxy) as url:
        found = asyncio.run(test(f"{url}?{how}"))
    # How a cut connection is described is the HTTP client's business.
    assert isinstance(found, Ambiguous) if outcome is None else found == outcome


@pytest.mark.long
def test_a_session_that_the_server_forgot_is_opened_again_before_the_call() -> None:
    async def test(url: str) -> AnyOutcome:
        async with McpClient(McpServerConfig(name="test", url=url)) as server:
            (tool,) = await server.tools()
            Proxy.forgotten.add("session")
            return await call(tool)

    with listening(Proxy) as url:
        assert asyncio.run(test(f"{url}?bad-gateway")) == Ambiguous("HTTP status 502")


@pytest.mark.long
def test_a_server_that_does_not_list_its_tools_in_time_gets_no_call() -> None:
    async def test() -> AnyOutcome:
        async with McpClient(misbehaving("slow-list", timeout=0.5)) as server:
            (tool,) = await server.tools()
            return await call(tool)

    assert asyncio.run(test()) == failed(
        "MCP server test: no answer within 0.5 s; the call was not sent"
    )


# Processes


def test_a_server_and_its_children_are_gone_when_it_is_closed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)

    async def test() -> None:
        async with McpClient(misbehaving("parent")) as server:
            await server.tools()

    asyncio.run(test())
    child = next(
        int(found[1])
        for record in caplog.records
        if (found := re.fullmatch(r"MCP server test: (\d+)", record.getMessage()))
    )
    assert "MCP server test ended with status 0" in caplog.text
    assert ends(child)
    assert not children()


@pytest.mark.long
def test_a_server_that_ignores_every_word_is_killed() -> None:
    config = misbehaving("stubborn", connect_timeout=0.5)
    asyncio.run(unavailable(config, "no connection within 0.5 s"))
    assert not children()


def test_whoever_does_not_wait_for_a_server_to_stop_has_it_killed() -> None:
    async def test() -> None:
        entered = asyncio.Event()

        async def hold() -> None:
            async with stdio_transport(misbehaving("stubborn"), ConnectionLoss(lambda why: None)):
                entered.set()
                await asyncio.Event().wait()

        holding = asyncio.ensure_future(hold())
        await entered.wait()
        holding.cancel()
        # It takes the server two graces to be killed.
        done, _ = await asyncio.wait((holding,), timeout=GRACE / 4)
        assert not done
        holding.cancel()
        done, _ = await asyncio.wait((holding,), timeout=60)
        assert done

    asyncio.run(test())
    assert not children()


def ends(pid: int) -> bool:
    """Whether a process that is not our child has ended, or does so when it notices its signal."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], 10)[0])
    finally:
        os.close(descriptor)


def children() -> list[str]:
    """The processes of servers that this process has started and not reaped."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = path.read_text().rpartition(")")
            command = path.with_name("cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
        # Other tests of this process leave a database, a browser, and `weft` commands. A process
        # that ended and was not reaped has no command.
        is_server = b"agent_mcp" in command or not command
        if int(rest.split()[1]) == os.getpid() and is_server:
            found.append(f"{name}){rest[:8]}")
    return found


# Settings


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "a__b", "command": ("x",)}, "'a__b' cannot be the name of an MCP server"),
        ({"name": "", "command": ("x",)}, "'' cannot be the name"),
        ({"name": "a"}, "MCP server a: either a command or a url"),
        ({"name": "a", "command": ("x",), "url": "http://x"}, "either a command or a url"),
        ({"name": "a", "command": ("x",), "timeout": 0}, "timeouts are positive"),
        ({"name": "a", "command": ("x",), "connect_timeout": -1}, "timeouts are positive"),
    ],
)
def test_settings_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentValueError, match=message):
        McpServerConfig(**options)


def test_arguments_are_an_object() -> None:
    async def test() -> None:
        async with McpClient(misbehaving("plain")) as server:
            (tool,) = await server.tools()
            assert tool.decode('{"a":[1]}') == {"a": [1]}
            for arguments in ("[]", "", '{"a":', '"\ud800"', "[" * 100_000):
                with pytest.raises(BadArguments):
                    tool.decode(arguments)
            assert not tool.needs_approval({})
            always = msgspec.structs.replace(tool.spec, approval="always")
            assert McpTool(server, always).needs_approval({})
            assert repr(tool) == "<tool test__act>"
            with pytest.raises(InternalError, match="arguments of test__act"):
                await tool.call(tool.spec, ToolContext("run_1", "call_1"))

    asyncio.run(test())


def test_without_the_package_the_error_says_what_to_install() -> None:
    program = """
import asyncio, sys
sys.modules["mcp"] = None  # as if it were not installed
from weft.agent.mcp import McpClient
from weft.agent.mcp_config import McpServerConfig
async def main():
    async with McpClient(McpServerConfig(name="a", command=("x",))):
        pass
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    last = done.stderr.strip().splitlines()[-1]
    assert last.endswith("MCP servers need the package mcp: pip install 'weft[mcp]'")


def test_the_package_is_loaded_only_when_a_server_is_started() -> None:
    program = "import sys, weft.agent.mcp; print([m for m in sys.modules if m.startswith('mcp')])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
