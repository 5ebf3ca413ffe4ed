"""The agents of a runtime as an upstream: each of them is a model.

A request starts a run, or answers one that waits for its client: with outputs of the client's own
tools, and with approvals. The response is the stream of the run up to the point where it waits or
ends. To the relay it is a response of the Responses API like any other, so a client may speak any
dialect, stream or not, leave a response in the background and resume it.

A client that goes away cancels the run, as it cancels any response; so does one that cancels the
response itself.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

import msgspec
from msgspec import Raw

from weft.agent.events import CallOutput
from weft.agent.lifecycle import CLOSED
from weft.agent.models import RESPONSES
from weft.agent.runtime import Runtime, UnknownAgent
from weft.agent.state import IllegalEvent, RunState
from weft.agent.stretch import StretchStart, StretchStream, call_of, run_of, start_after
from weft.agent.tool_spec import ToolSpec
from weft.codec import Encoder, fresh_context
from weft.context import Context
from weft.dialects.error_classes import new_error
from weft.errors import BadRequest, ClientError
from weft.parts import ErrorPart, ResponseMetadata
from weft.relay.incoming import api_of
from weft.relay.persistence import Persistence
from weft.request import Message, OpaqueContent, Request, ResultContent, ToolChoice
from weft.store.base import NotFound, StoreError
from weft.upstream.base import (
    BreakerPolicy,
    OutgoingRequest,
    RetryPolicy,
    Timeouts,
    Unreachable,
    UpstreamConfig,
    endpoint,
)

log = logging.getLogger("weft.agent")

APPROVAL = "mcp_approval_response"
CLIENT = "client"
"""Who decided, where the API has no names."""


class _Input(msgspec.Struct):
    """What is read of a body as it is; everything else is parsed by the dialect."""

    input: str | list[Raw] = []


class _GivenItem(msgspec.Struct):
    """What is read of any item of a conversation."""

    type: str | None = None
    role: str | None = None


class _GivenMcpCall(msgspec.Struct):
    id: str
    name: str
    server_label: str
    arguments: str
    output: str | None = None


class _ApprovalAnswer(msgspec.Struct):
    approval_request_id: str = ""
    approve: bool = False
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class _Answers:
    """What a request says to a run that waits."""

    outputs: list[ResultContent] = field(default_factory=list)
    approvals: list[_ApprovalAnswer] = field(default_factory=list)

    @property
    def ids(self) -> list[str]:
        return [
            *(one.id for one in self.outputs),
            *(one.approval_request_id for one in self.approvals),
        ]


_read_input = msgspec.json.Decoder(_Input).decode
_read_item = msgspec.json.Decoder(_GivenItem).decode
_read_call = msgspec.json.Decoder(_GivenMcpCall).decode
_read_object = msgspec.json.Decoder(dict[str, Raw]).decode
_read_approval = msgspec.json.Decoder(_ApprovalAnswer).decode


CONFIG = UpstreamConfig(
    "weft-agents",
    RESPONSES,
    "agent:",
    # A tool may take any time, and a second attempt would be a second run.
    timeouts=Timeouts(between_events=inf),
    retry=RetryPolicy(attempts=1),
    breaker=BreakerPolicy(failures=0),
)


class RunUpstream:
    """An upstream whose models are the agents of a runtime."""

    def __init__(
        self,
        runtime: Runtime,
        persistence: Persistence,
        config: UpstreamConfig = CONFIG,
        *,
        tools_visible: Callable[[str], bool] = lambda agent: True,
    ) -> None:
        """`tools_visible`: whether clients of an agent see the calls that it runs."""
        self._config = config
        self._runtime = runtime
        self._persistence = persistence
        self._tools_visible = tools_visible
        self._is_stopping = False
        self._cancelling: set[asyncio.Task[None]] = set()

    @property
    def config(self) -> UpstreamConfig:
        return self._config

    def stop(self) -> None:
        """The process stops: responses end, and their runs go on in another one."""
        self._is_stopping = True

    async def close(self) -> None:
        if self._cancelling:
            await asyncio.wait(self._cancelling)

    async def send(self, outgoing: OutgoingRequest) -> "StretchResponse | RefusedResponse":
        """As Upstream.send."""
        context = fresh_context()
        if outgoing.path != endpoint(RESPONSES, "", True):
            # To count tokens, for example, must not start a run.
            return RefusedResponse(new_error("not-found", f"agents have no {outgoing.path}"))
        try:
            request = api_of(RESPONSES).request.parse(outgoing.body, context).request
            answers = answers_in(request.messages)
            if answers.ids:
                start = await self._answer(answers, outgoing)
            else:
                start = await self._start(request, outgoing)
        except StoreError as problem:
            raise Unreachable(f"the store of the runs: {problem}") from None
        except ClientError as problem:
            return RefusedResponse(_error_of(problem))
        metadata = ResponseMetadata(context.ids.mint("resp"), request.model, context.now)
        stream = StretchStream(
            self._runtime,
            self._persistence,
            start,
            metadata,
            label=request.model,
            tools_visible=self._tools_visible(request.model),
        )
        encoding = Context(request, ids=context.ids, now=context.now, response_id=metadata.id)
        return StretchResponse(stream, encoding, lambda: self._abandon(start.run))

    async def _start(self, request: Request, outgoing: OutgoingRequest) -> StretchStart:
        given, agent = _read_input(outgoing.body).input, request.model
        items = [_message("user", given)] if isinstance(given, str) else input_of_run(given, agent)
        if request.instructions:
            # Those of the agent come first; a client may add to them.
            items.insert(0, _message("developer", request.instructions))
        run = await self._runtime.start(
            agent,
            items,
            owner=outgoing.caller,
            metadata=request.metadata,
            client_tools=client_tools(request),
        )
        return StretchStart(run, RunState(run))

    async def _answer(self, answers: _Answers, outgoing: OutgoingRequest) -> StretchStart:
        """Answers the run that waits. The same answers again change nothing, and give the same
        stretch. Raises ClientError, StoreError."""
        runs = {run_of(id) for id in answers.ids}
        run = runs.pop()
        if runs or run is None:
            raise ClientError("the outputs and approvals of one request belong to one run")
        owner = outgoing.caller
        state = await self._runtime.state(run, owner)
        named = {id: call_of(state, id) for id in answers.ids}
        calls = {id: call for id, call in named.items() if call is not None}
        if len(calls) < len(named):
            raise NotFound(f"run {run!r} has no call {(named.keys() - calls.keys()).pop()!r}")
        given = _read_input(outgoing.body).input
        if not isinstance(given, str) and any(
            state.calls[id].state is not CLOSED for id in calls.values()
        ):
            # Before the answers: the next turn begins with the last of them.
            for message in messages_in(given):
                await self._runtime.add_message(run, _read_object(message))
        for one in answers.approvals:
            id = calls[one.approval_request_id]
            asked = state.calls[id].approval
            if asked is None:
                raise ClientError(f"no approval is needed for {one.approval_request_id!r}")
            await self._runtime.decide_approval(
                run, asked.approval, one.approve, by=owner or CLIENT, reason=one.reason or ""
            )
        if answers.outputs:
            outputs = [
                CallOutput(calls[one.id], one.content, one.is_error) for one in answers.outputs
            ]
            await self._runtime.submit_outputs(run, outputs)
        return await start_after(self._persistence.store, run, {*calls.values()})

    def _abandon(self, run: str) -> None:
        """The response was cut: nobody waits for the run any more."""
        if not self._is_stopping:
            task = asyncio.create_task(self._cancel(run))
            self._cancelling.add(task)
            task.add_done_callback(self._cancelling.discard)

    async def _cancel(self, run: str) -> None:
        try:
            await self._runtime.cancel(run, by=CLIENT, reason="the response was cancelled")
        except (StoreError, NotFound) as problem:
            log.warning("run %s: cannot be cancelled: %s", run, problem)


def answers_in(messages: Sequence[Message]) -> _Answers:
    """The answers to runs at the end of a conversation: after the last output of a model."""
    found = _Answers()
    for message in reversed(messages):
        if message.role == "assistant":
            break
        for content in message.content:
            if isinstance(content, ResultContent) and run_of(content.id):
                found.outputs.append(content)
            elif isinstance(content, OpaqueContent) and content.kind == APPROVAL:
                answer = _read_approval(content.raw)
                if run_of(answer.approval_request_id):
                    found.approvals.append(answer)
    return found


def messages_in(items: Sequence[Raw]) -> list[Raw]:
    """What the user says beside the answers, in its order."""
    found: list[Raw] = []
    for raw in reversed(items):
        item = _read_item(raw)
        if item.type in (None, "message") and item.role != "assistant":
            found.insert(0, raw)
        elif item.type is None or not item.type.endswith(("_output", "_response")):
            break
    return found


def input_of_run(items: Sequence[Raw], agent: str) -> list[object]:
    """A conversation as the model of the agent can read it: calls that the agent has run are those
    of functions, which it has, and not of a server that only clients know."""
    found: list[object] = []
    for raw in items:
        match _read_item(raw).type:
            case "mcp_call":
                found += _as_function(raw, agent)
            case "mcp_approval_request" | "mcp_approval_response":
                pass  # it was for a run, and says nothing to a model
            case _:
                found.append(raw)
    return found


def _as_function(raw: Raw, agent: str) -> list[object]:
    try:
        item = _read_call(raw)
    except ValueError:
        return [raw]  # the dialect says what is wrong with it
    if item.server_label != agent:
        return [raw]  # of a real server, behind some upstream
    call = {"call_id": item.id, "name": item.name, "arguments": item.arguments}
    output = {"call_id": item.id, "output": item.output or ""}
    return [{"type": "function_call", **call}, {"type": "function_call_output", **output}]


def client_tools(request: Request) -> list[ToolSpec]:
    """The tools that the client runs. Raises BadRequest for what an agent cannot do and the client
    relies on; sampling and limits of one answer are the agent's own matter."""
    found: list[ToolSpec] = []
    for number, tool in enumerate(request.tools):
        if tool.kind != "function":
            raise BadRequest(f"tools[{number}]", f"{tool.kind} is not supported; expected function")
        schema = tool.parameters if isinstance(tool.parameters, Raw) else Raw(b'{"type":"object"}')
        found.append(ToolSpec(tool.name, tool.description or "", schema, kind="client"))
    choice = request.tool_choice or ToolChoice()
    if choice.mode not in ("auto", "none") or choice.name or choice.allowed:
        raise BadRequest("tool_choice", "an agent chooses its tools itself; expected auto or none")
    if request.output.kind != "text":
        raise BadRequest("text.format", f"{request.output.kind} is not supported; expected text")
    return [] if choice.mode == "none" else found


def _message(role: str, text: str) -> dict[str, str]:
    return {"type": "message", "role": role, "content": text}


def _error_of(problem: ClientError) -> ErrorPart:
    if isinstance(problem, UnknownAgent | NotFound):
        return new_error("not-found", str(problem))
    if isinstance(problem, IllegalEvent):
        return new_error("conflict", str(problem))
    return new_error("bad-request", str(problem))


class StretchResponse:
    """The response of an agent: the events of a stretch, as they come."""

    status = 200
    headers: Mapping[str, str] = {"content-type": "text/event-stream"}

    def __init__(
        self, stream: StretchStream, context: Context, abandon: Callable[[], None]
    ) -> None:
        """`abandon` is called if the response is aborted before its end."""
        self._stream = stream
        self._abandon = abandon
        self._encoder = Encoder(RESPONSES, context=context, collector=stream.findings)
        self._next: asyncio.Task[bytes] | None = None
        self._is_over = False

    async def read(self) -> bytes:
        """As UpstreamResponse.read."""
        if self._is_over:
            return b""
        self._next = asyncio.ensure_future(self._read())
        try:
            data = await self._next
        except StoreError as problem:
            raise Unreachable(f"the store of the runs: {problem}", "truncated") from None
        except asyncio.CancelledError:
            waiting = asyncio.current_task()
            if waiting is None or waiting.cancelling():
                raise
            # Not whoever waits here was cancelled, but the response.
            raise Unreachable("the response was aborted", "truncated") from None
        if not data:
            self._is_over = True
            await self._stream.close()
        return data

    async def _read(self) -> bytes:
        while parts := await self._stream.next():
            if data := b"".join(self._encoder.feed_guarded(parts)):
                return data
        return b"".join(self._encoder.finish())

    async def stream_to(self, take: Callable[[bytes], bool]) -> None:
        """As UpstreamResponse.stream_to."""
        while data := await self.read():
            if not take(data):
                return

    def abort(self) -> None:
        """As UpstreamResponse.abort."""
        if self._is_over:
            return
        self._is_over = True
        if self._next is not None:
            self._next.cancel()
        self._stream.stop()
        if not self._stream.ended:
            self._abandon()


class RefusedResponse:
    """The response to a request that no run can answer."""

    headers: Mapping[str, str] = {"content-type": "application/json"}

    def __init__(self, error: ErrorPart) -> None:
        self.status, self._body = api_of(RESPONSES).write_error(error)

    async def read(self) -> bytes:
        body, self._body = self._body, b""
        return body

    async def stream_to(self, take: Callable[[bytes], bool]) -> None:
        """All of it comes from `read`."""

    def abort(self) -> None:
        """There is nothing to close."""
