"""The agents of a runtime as an upstream: each of them is a model.

A request starts a run, or answers one that waits for its client: with outputs of the client's own
tools, and with approvals. The response is the stream of the run up to the point where it waits or
ends. To the relay it is a response of the Responses API like any other, so a client may speak any
dialect, stream or not, leave a response in the background and resume it.

A client that goes away cancels the run, as it cancels any response; so does one that cancels the
response itself.

A client whose dialect has no approvals is asked in words, and answers in words: a line of its next
message that says `approve`, or `deny`, and the id of the call.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from math import inf

import msgspec
from msgspec import Raw

from weft.agent.conversations import input_of_run, read_item
from weft.agent.events import CallOutput
from weft.agent.lifecycle import ASKED, AWAITED
from weft.agent.models import RESPONSES
from weft.agent.runtime import AgentRuntime, KeyReused, UnknownAgent
from weft.agent.segment import (
    SegmentStart,
    SegmentStream,
    call_of,
    position_of,
    run_of,
    start_after,
)
from weft.agent.state import Call, IllegalEvent, RunState
from weft.agent.tool_spec import ToolSpec
from weft.codec import Encoder, fresh_context
from weft.context import Context
from weft.dialects.error_classes import new_error
from weft.errors import BadRequest, ClientError
from weft.parts import ErrorPart, ResponseMetadata
from weft.relay.incoming import api_of
from weft.relay.persistence import Persistence
from weft.relay.trace_context import TRACEPARENT
from weft.relay.translation import RUN, RUN_HEADER
from weft.request import (
    Message,
    OpaqueContent,
    Request,
    ResultContent,
    TextContent,
    ToolChoice,
)
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


class AgentUnavailable(ClientError):
    """The tools of the agent are not known yet."""


class _Input(msgspec.Struct):
    """What is read of a body as it is; everything else is parsed by the dialect."""

    input: str | list[Raw] = []


class _GivenContent(msgspec.Struct):
    text: str = ""


class _GivenMessage(msgspec.Struct):
    content: str | list[_GivenContent] = ""


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


_KEY = re.compile(r"[\x21-\x7e]{1,255}")
_DECISION = re.compile(r"\s*`?(approve|deny) (run_[0-9a-f]+_[0-9_-]+)`?[.\s]*", re.IGNORECASE)
_canonical = msgspec.json.Encoder(order="deterministic").encode
_read_input = msgspec.json.Decoder(_Input).decode
_read_object = msgspec.json.Decoder(dict[str, Raw]).decode
_read_message = msgspec.json.Decoder(_GivenMessage).decode
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
        runtime: AgentRuntime,
        persistence: Persistence,
        config: UpstreamConfig = CONFIG,
        *,
        unavailable: Mapping[str, str] | None = None,
    ) -> None:
        """`unavailable`: why an agent is not there yet, by its name."""
        self._unavailable = {} if unavailable is None else unavailable
        self._config = config
        self._runtime = runtime
        self._persistence = persistence
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

    async def send(self, outgoing: OutgoingRequest) -> "SegmentResponse | RefusedResponse":
        """As Upstream.send."""
        context = fresh_context()
        if outgoing.path != endpoint(RESPONSES, "", True):
            # To count tokens, for example, must not start a run.
            return RefusedResponse(new_error("not-found", f"agents have no {outgoing.path}"))
        is_translated = outgoing.client not in (None, RESPONSES)
        try:
            request = api_of(RESPONSES).request.parse(outgoing.body, context).request
            answers = answers_in(request.messages, in_text=is_translated)
            if answers.ids:
                start = await self._answer(answers, outgoing)
            else:
                start = await self._start(request, outgoing)
        except StoreError as problem:
            raise Unreachable(f"the store of the runs: {problem}") from None
        except BadRequest as problem:
            # Its path is one of the Responses API, which the client may not speak.
            message = problem.reason if is_translated else str(problem)
            return RefusedResponse(new_error("bad-request", message))
        except ClientError as problem:
            return RefusedResponse(_error_of(problem))
        metadata = ResponseMetadata(context.ids.mint("resp"), request.model, context.now)
        agent = self._runtime.agents.get(request.model)
        stream = SegmentStream(
            self._runtime,
            self._persistence,
            start,
            metadata,
            label=request.model,
            tools_visible=agent is None or agent.definition.tools_visible,
            approvals_in_text=is_translated,
        )
        for number in dropped_tools(request):
            detail = f"tools[{number}]: dropped: an agent has no web search of the client"
            stream.findings.note("not-carried", detail)
        named = msgspec.structs.replace(
            request, metadata={**(request.metadata or {}), RUN: start.run}
        )
        encoding = Context(named, ids=context.ids, now=context.now, response_id=metadata.id)
        return SegmentResponse(stream, encoding, start.run, lambda: self._abandon(start.run))

    async def _start(self, request: Request, outgoing: OutgoingRequest) -> SegmentStart:
        given, agent = _read_input(outgoing.body).input, request.model
        if agent in self._unavailable:
            why = self._unavailable[agent]
            raise AgentUnavailable(f"agent {agent} is not available at the moment: {why}")
        items: list[object] = (
            [_message("user", given)] if isinstance(given, str) else [*input_of_run(given, agent)]
        )
        if request.instructions:
            # Those of the agent come first; a client may add to them.
            items.insert(0, _message("developer", request.instructions))
        # Asked again after the death of a process: the run goes on, and no second one begins.
        key, digest = outgoing.key, ""
        if key is None and outgoing.idempotency_key is not None:
            key = checked_key(outgoing.idempotency_key)
            digest = request_digest(outgoing.body)
        run = await self._runtime.start(
            agent,
            items,
            owner=outgoing.caller,
            metadata=request.metadata,
            client_tools=client_tools(request),
            key=key,
            request=digest,
            traceparent=outgoing.headers.get(TRACEPARENT, ""),
        )
        return SegmentStart(run, RunState(run))

    async def _answer(self, answers: _Answers, outgoing: OutgoingRequest) -> SegmentStart:
        """Answers the run that waits, or its descendants that wait. The same answers again change
        nothing, and give the same segment. Raises ClientError, StoreError."""
        owner = outgoing.caller
        root = await self._root(answers.ids, owner)
        runs = {run for id in answers.ids if (run := run_of(id)) is not None}
        states = {run: await self._runtime.state(run, owner) for run in runs}
        calls = {id: _call(states, id) for id in answers.ids}
        for one in answers.approvals:
            if calls[one.approval_request_id].approval is None:
                raise ClientError(f"no approval is needed for {one.approval_request_id!r}")
        given = _read_input(outgoing.body).input
        # Before the answers: the next turn begins with the last of them. A repeated request has
        # added its messages already.
        if any(call.state in (ASKED, AWAITED) for call in calls.values()):
            # Nor twice because a server died before it had written the answers.
            ids = " ".join(sorted(answers.ids)).encode()
            said = [] if isinstance(given, str) else messages_in(given)
            for number, message in enumerate(said):
                key = f"beside {number} {sha256(ids + bytes(message)).hexdigest()}"
                await self._runtime.add_message(root, _read_object(message), key=key)
        for one in answers.approvals:
            run, asked = run_of(one.approval_request_id), calls[one.approval_request_id].approval
            if run is not None and asked is not None:
                await self._runtime.decide_approval(
                    run, asked.approval, one.approve, by=owner or CLIENT, reason=one.reason or ""
                )
        for run in runs:
            outputs = [
                CallOutput(calls[one.id].id, one.content, one.is_error)
                for one in answers.outputs
                if run_of(one.id) == run
            ]
            if outputs:
                await self._runtime.submit_outputs(run, outputs)
        answered = {
            run: {call.id for id, call in calls.items() if run_of(id) == run} for run in runs
        }
        own = answered.pop(root, set())
        positions = [at for id in answers.ids if (at := position_of(id)) is not None]
        at = min(positions, default=None)
        return await start_after(self._persistence.store, root, own, at, answered)

    async def _root(self, ids: Sequence[str], owner: str) -> str:
        """The run in whose segment these calls were shown. Raises ClientError, StoreError."""
        roots: set[str] = set()
        for id in ids:
            run = run_of(id) or ""
            parent = None if position_of(id) is None else run
            while parent is not None:
                run, parent = parent, (await self._runtime.row(parent, owner)).parent
            roots.add(run)
        if len(roots) != 1:
            raise ClientError("the outputs and approvals of one request belong to one run")
        return roots.pop()

    async def cancel_key(self, owner: str, key: str) -> None:
        """Cancels the run that was started by a request with this key, if there is one. Raises
        StoreError."""
        run = await self._persistence.store.run_of_key(owner, key)
        if run is not None:
            await self._cancel(run)

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


def _call(states: Mapping[str, RunState], id: str) -> Call:
    """The call with this id for clients. Raises NotFound."""
    run = run_of(id) or ""
    call = call_of(states[run], id)
    if call is None:
        raise NotFound(f"run {run!r} has no call {id!r}")
    return states[run].calls[call]


def answers_in(messages: Sequence[Message], *, in_text: bool = False) -> _Answers:
    """The answers to runs at the end of a conversation: after the last output of a model.
    `in_text`: approvals are answered in words."""
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
            elif isinstance(content, TextContent) and in_text and message.role == "user":
                for line in map(_DECISION.fullmatch, content.text.splitlines()):
                    if line is not None:
                        approves = line[1].lower() == "approve"
                        found.approvals.append(_ApprovalAnswer(line[2], approves))
    return found


def messages_in(items: Sequence[Raw]) -> list[Raw]:
    """What the user says beside the answers, in its order: not the answers themselves."""
    found: list[Raw] = []
    for raw in reversed(items):
        item = read_item(raw)
        if item.type in (None, "message") and item.role != "assistant":
            if not _is_decision(raw):
                found.insert(0, raw)
        elif item.type is None or not item.type.endswith(("_output", "_response")):
            break
    return found


def _is_decision(raw: Raw) -> bool:
    """Whether a message only approves or denies calls."""
    content = _read_message(raw).content
    texts = [content] if isinstance(content, str) else [one.text for one in content]
    lines = [line for text in texts for line in text.splitlines() if line.strip()]
    return bool(lines) and all(_DECISION.fullmatch(line) for line in lines)


def client_tools(request: Request) -> list[ToolSpec]:
    """The tools that the client runs. Raises BadRequest for what an agent cannot do and the client
    relies on; sampling and limits of one answer are the agent's own matter."""
    found: list[ToolSpec] = []
    dropped = dropped_tools(request)
    for number, tool in enumerate(request.tools):
        if number in dropped:
            continue
        if tool.kind != "function":
            reason = f"{tool.kind} tools are not supported; expected functions"
            raise BadRequest(f"tools[{number}]", reason)
        schema = tool.parameters if isinstance(tool.parameters, Raw) else Raw(b'{"type":"object"}')
        found.append(ToolSpec(tool.name, tool.description or "", schema, kind="client"))
    choice = request.tool_choice or ToolChoice()
    if choice.mode not in ("auto", "none") or choice.name or choice.allowed:
        raise BadRequest("tool_choice", "an agent chooses its tools itself; expected auto or none")
    if request.output.kind != "text":
        reason = f"{request.output.kind} output is not supported; expected text"
        raise BadRequest("text.format", reason)
    return [] if choice.mode == "none" else found


def checked_key(key: str) -> str:
    """The idempotency key of a client. Raises BadRequest."""
    if not _KEY.fullmatch(key):
        expected = "expected 1 to 255 visible ASCII characters"
        raise BadRequest("Idempotency-Key", f"the key has {len(key)} characters; {expected}")
    return key


def request_digest(body: bytes) -> str:
    """Of what a request says, whatever its blanks and the order of its keys. To stream it or not is
    no difference: the run is the same."""
    fields = msgspec.json.decode(body)
    fields.pop("stream", None)
    return sha256(_canonical(fields)).hexdigest()


def dropped_tools(request: Request) -> list[int]:
    """The tools of a request that are left out, by their numbers: a web search that is offered
    beside functions, as Codex always does. It is not required, and the agent has its own tools."""
    if not any(tool.kind == "function" for tool in request.tools):
        return []
    return [number for number, tool in enumerate(request.tools) if tool.kind == "web-search"]


def _message(role: str, text: str) -> dict[str, str]:
    return {"type": "message", "role": role, "content": text}


def _error_of(problem: ClientError) -> ErrorPart:
    if isinstance(problem, UnknownAgent | NotFound):
        return new_error("not-found", str(problem))
    if isinstance(problem, AgentUnavailable):
        return new_error("overloaded", str(problem), retry_after=1)
    if isinstance(problem, IllegalEvent | KeyReused):
        return new_error("conflict", str(problem))
    return new_error("bad-request", str(problem))


class SegmentResponse:
    """The response of an agent: the events of a segment, as they come."""

    status = 200

    def __init__(
        self, stream: SegmentStream, context: Context, run: str, abandon: Callable[[], None]
    ) -> None:
        """`abandon` is called if the response is aborted before its end."""
        self.headers = {"content-type": "text/event-stream", RUN_HEADER: run}
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
            # The response was cancelled, not the task that waits here.
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
