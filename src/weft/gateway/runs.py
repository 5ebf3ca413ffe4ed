"""Endpoints of agent runs: start, follow, act on, fork, delete. A run of another key is a 404.

Whatever changes a run is an event in its log, and is checked against its state: a post that cannot
follow is a 409 that says what the state was, and changes nothing. The same post again is answered
as the first one.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from typing import Literal, NamedTuple, get_args
from urllib.parse import parse_qs

import msgspec
from msgspec import Raw

from weft.agent.conversations import UnknownConversation
from weft.agent.events import (
    AnyRunEvent,
    CallOutput,
    Contents,
    Scope,
    TurnStarted,
    decode_event,
)
from weft.agent.merge import CallProgress, TurnParts
from weft.agent.run_reader import LoggedEntry, RunReader
from weft.agent.runtime import AgentRuntime, IllegalFork, KeyReused, UnknownAgent
from weft.agent.state import IllegalEvent
from weft.agent.tool_spec import TOOL_NAME, ToolSpec, definition_digest
from weft.agent.turns import output_text
from weft.agent.upstream import request_digest
from weft.context import Context
from weft.dialects import DIALECTS
from weft.dialects.error_classes import new_error
from weft.errors import BadRequest, ClientError
from weft.gateway import endpoints, http_response
from weft.gateway.agents import AgentService
from weft.gateway.apis import RESPONSES
from weft.gateway.auth import HttpRejection
from weft.gateway.bodies import RequestAborted
from weft.gateway.endpoints import (
    GatewayContext,
    Receive,
    Send,
    decode_body,
    headers_of,
    idempotency_key,
    read_body,
)
from weft.gateway.exchange import EXCHANGE
from weft.gateway.http_response import ClientConnection
from weft.gateway.run_objects import (
    JsonObject,
    agent_object,
    event_object,
    part_object,
    progress_object,
    run_view,
    summary_object,
)
from weft.gateway.sessions import ITEM_REFERENCE
from weft.gateway.store_endpoint import Metadata, validate_metadata
from weft.gateway.stored_responses import (
    EXPECTED_ERRORS,
    LAST_EVENT_ID,
    MAX_PAGE_SIZE,
    PAGE_SIZE,
    Query,
    int_param,
    is_descending,
    not_found,
    send_problem,
    stream_events,
    word_param,
)
from weft.gateway.writers import EventStreamWriter
from weft.relay import history
from weft.relay.incoming import RequestFailed, api_of
from weft.relay.offload import for_body
from weft.request import Message, OpaqueContent, ResultContent
from weft.sse import Event, frame
from weft.store.base import EVENT_SIZE, NotFound
from weft.store.records import RunEvent, RunRow

PROGRESS = "call.progress"
PART = "turn.part"
"""The kinds of events that are only in streams."""

TURNS = ("turn.started", "turn.finished", "turn.interrupted")
"""The kinds of events at which a turn begins and ends."""

STATUSES = ("running", "waiting", "finished", "failed", "cancelled")
KINDS = (*(str(one.__struct_config__.tag) for one in get_args(AnyRunEvent)), PROGRESS)
"""The kinds of events."""

PARTS = "parts of the types input_text, input_image and input_file"
LARGEST = 10**9 - 1
"""The largest number of an event that a query can have."""

_json = msgspec.json.Encoder().encode

HttpScope = endpoints.Scope


class _Strict(msgspec.Struct, forbid_unknown_fields=True):
    """The base of the bodies: these are our own endpoints, so an unknown field is a mistake."""


class _RunConversation(_Strict):
    id: str


class _NewRunBody(_Strict):
    agent: str
    input: str | list[Raw]
    stream: bool | None = None
    limits: dict[str, int | float] | None = None
    metadata: Metadata | None = None
    tools: list[Raw] | None = None
    conversation: str | _RunConversation | None = None
    """As in the Responses API: an id, or an object with one."""


class _ApprovalBody(_Strict):
    approval_id: str
    approve: bool
    reason: str = ""
    scope: Scope = "call"


class _OutputBody(_Strict):
    call_id: str
    output: str | list[Raw] = ""
    is_error: bool = False


class _OutputsBody(_Strict):
    outputs: list[_OutputBody]


class _ResolveBody(_Strict):
    call_id: str
    action: Literal["done", "retry", "abandon"]
    result: str | list[Raw] | None = None
    is_error: bool = False


class _MessageBody(_Strict):
    content: str | list[Raw]


class _CancelBody(_Strict):
    reason: str = ""


class _ForkBody(_Strict):
    after: int


class RunPosition(NamedTuple):
    """How much of a run a client has: the number of the last event in the log, and how many parts
    of the turn that is open after it."""

    seq: int
    part: int = 0


class RunEventWriter(EventStreamWriter):
    """Server-sent events whose ids are positions in a run: the number of the event in its log; as
    long as parts of a turn were sent that is still open, also a point and the number of these."""

    def __init__(self, idle: bytes, position: RunPosition) -> None:
        super().__init__(idle)
        self._seq, self._parts = position

    def write(self, events: Sequence[Event]) -> bytes:
        return b"".join([piece for event in events for piece in self.frame(event)])

    def frame(self, event: Event) -> tuple[bytes, bytes, bytes]:
        before, data, after = frame(event.name, event.data)
        if event.name == PART:
            self._parts += 1
        elif event.number is None:
            # What is not in the log has no number, and a client resumes after the last one it has.
            return before, data, after
        else:
            self._seq = event.number
            self._parts = 0 if event.name in TURNS else self._parts
        part = b".%d" % self._parts if self._parts else b""
        return b"id: %d%b\n%b" % (self._seq, part, before), data, after


class _RunsEndpoint(ABC):
    """One path: sends the JSON that `_handle` returns, or its error."""

    def __init__(self, gateway: GatewayContext, agents: AgentService) -> None:
        self._gateway = gateway
        self._agents = agents
        self._store = agents.store
        self._runtime: AgentRuntime = agents.runtime

    async def __call__(self, scope: HttpScope, receive: Receive, send: Send) -> None:
        try:
            found = await self._handle(scope, receive, send)
        except RequestAborted:
            return  # the client is gone: there is nobody to answer
        except ClientError as error:
            await send_problem(send, RESPONSES, scope["weft.id"], _rejection(error))
        except EXPECTED_ERRORS as problem:
            await send_problem(send, RESPONSES, scope["weft.id"], problem)
        else:
            if found is not None:
                await http_response.send_json(send, scope["weft.id"], _json(found))

    @abstractmethod
    async def _handle(self, scope: HttpScope, receive: Receive, send: Send) -> JsonObject | None:
        """Returns None if it has sent the response itself. Raises ClientError, RequestFailed,
        StoreError, RequestAborted."""

    async def _body(self, scope: HttpScope, receive: Receive) -> bytes:
        body = await read_body(self._gateway, scope, receive)
        # All of it becomes one event.
        if len(body) > EVENT_SIZE:
            message = f"the body has {len(body)} bytes; expected at most {EVENT_SIZE}"
            raise HttpRejection(413, new_error("too-large", message))
        return body

    async def _row(self, scope: HttpScope) -> RunRow:
        id = scope["path_params"]["id"]
        row = await self._store.owned_run(scope["weft.caller"], id)
        if row is None:
            raise not_found("Run", id)
        return row

    async def _object(self, scope: HttpScope, id: str) -> JsonObject:
        """The run as it is now."""
        row = await self._store.owned_run(scope["weft.caller"], id)
        if row is None:  # deleted meanwhile
            raise not_found("Run", id)
        view = await run_view(self._store, row)
        if row.agent not in self._runtime.agents:
            why = self._agents.unavailable.get(row.agent)
            view.unavailable = why or f"this server has no agent {row.agent!r}"
        answer = None if view.answer is None else await self._store.entry(view.answer)
        body = answer.body if answer is not None else None
        return view.object(None if body is None else await for_body(body, output_text, body))

    async def _stream(
        self,
        scope: HttpScope,
        send: Send,
        id: str,
        position: RunPosition,
        kinds: Sequence[str] | None = None,
        *,
        with_parts: bool = False,
    ) -> None:
        """Sends the events of a run as they come. A client that leaves does not stop the run."""
        client = ClientConnection(scope["weft.id"], RESPONSES, send, scope[EXCHANGE])
        writer = RunEventWriter(DIALECTS[RESPONSES].idle, position)
        events = _sent_events(self._runtime.follow(id, position.seq), kinds)
        if with_parts:
            turn = await self._open_turn(id, position.seq)
            persistence = self._agents.persistence
            reader = RunReader(self._runtime, persistence, id, position.seq, turn)
            events = _sent_parts(reader, turn, position.part)
        await stream_events(scope, client, events, writer, self._gateway.keepalive)

    async def _open_turn(self, id: str, seq: int) -> str | None:
        """The response of the turn that is open after this event."""
        last: RunEvent | None = None
        after = 0
        while events := await self._store.run_events(id, after, kinds=TURNS):
            after = events[-1].seq
            last = next((one for one in reversed(events) if one.seq <= seq), last)
        started = None if last is None else decode_event(last.body)
        return started.response if isinstance(started, TurnStarted) else None


async def _sent_events(
    events: AsyncIterator[RunEvent | CallProgress], kinds: Sequence[str] | None
) -> AsyncIterator[list[Event]]:
    async for event in events:
        if isinstance(event, CallProgress):
            if kinds is None or PROGRESS in kinds:
                yield [Event(PROGRESS, _json(progress_object(event, PROGRESS)))]
        elif kinds is None or event.kind in kinds:
            yield [Event(event.kind, _json(event_object(event)), event.seq)]


async def _sent_parts(
    reader: RunReader, turn: str | None, skipped: int
) -> AsyncIterator[list[Event]]:
    """The events of a run, with the parts of its turns; of this turn without the first ones, which
    the client has."""
    try:
        while (entry := await reader.next()) is not None:
            match entry:
                case LoggedEntry(stored=stored):
                    yield [Event(stored.kind, _json(event_object(stored)), stored.seq)]
                case CallProgress():
                    yield [Event(PROGRESS, _json(progress_object(entry, PROGRESS)))]
                case TurnParts(response=response, parts=parts):
                    new = parts
                    if response == turn:
                        new, skipped = parts[skipped:], max(0, skipped - len(parts))
                    yield [Event(PART, _json(part_object(reader.run, one, PART))) for one in new]
    finally:
        await reader.close()


def _rejection(error: ClientError) -> BadRequest | RequestFailed:
    """The error that a client gets for an error of the runtime."""
    match error:
        case BadRequest():
            return error
        case UnknownAgent():
            return HttpRejection(404, new_error("bad-request", str(error), param="agent"))
        case UnknownConversation():
            return HttpRejection(404, new_error("bad-request", str(error), param="conversation"))
        case NotFound():
            return HttpRejection(404, new_error("bad-request", str(error)))
        case IllegalEvent() | IllegalFork() | KeyReused():
            return HttpRejection(409, new_error("bad-request", str(error)))
    # What the runtime says of a field begins with its path.
    path, colon, reason = str(error).partition(": ")
    is_path = bool(colon) and re.fullmatch(r"[a-z_.]+", path) is not None
    return BadRequest(path, reason) if is_path else BadRequest("", str(error))


class RunsEndpoint(_RunsEndpoint):
    """`/v1/runs`"""

    async def _handle(self, scope: HttpScope, receive: Receive, send: Send) -> JsonObject | None:
        if scope["method"] == "POST":
            return await self._start(scope, receive, send)
        query = _query(scope)
        status, agent, after, parent = (
            query.get(name, [None])[-1] for name in ("status", "agent", "after", "parent")
        )
        if status is not None and status not in STATUSES:
            raise BadRequest("status", f"{status[:50]!r}; expected one of {', '.join(STATUSES)}")
        limit = int_param(query, "limit", PAGE_SIZE, 1, MAX_PAGE_SIZE)
        descending = is_descending(query, default=True)
        owner = scope["weft.caller"]
        try:
            page = await self._store.runs(owner, status, agent, after, limit, descending, parent)
        except NotFound:
            raise BadRequest("after", f"no run {str(after)[:100]!r}") from None
        return _list([summary_object(row) for row in page.runs], "id", more=page.more)

    async def _start(self, scope: HttpScope, receive: Receive, send: Send) -> JsonObject | None:
        if self._gateway.is_draining:
            message = "the server is shutting down"
            raise HttpRejection(503, new_error("overloaded", message, retry_after=1))
        body = await self._body(scope, receive)
        new = await for_body(body, _parse_run, body)
        self._gateway.check_model(scope["weft.caller"], new.agent)
        why = self._agents.unavailable.get(new.agent)
        if why is not None:
            message = f"agent {new.agent} is not available at the moment: {why}"
            raise HttpRejection(503, new_error("overloaded", message, retry_after=1))
        given = new.conversation
        conversation = given.id if isinstance(given, _RunConversation) else given
        with self._gateway.traced("POST /v1/runs", headers_of(scope)) as traceparent:
            id = await self._runtime.start(
                new.agent,
                new.input,
                owner=scope["weft.caller"],
                key=idempotency_key(scope),
                limits=new.limits,
                metadata=new.metadata,
                client_tools=_client_tools(new.tools or ()),
                conversation=conversation,
                request=request_digest(body),
                traceparent=traceparent,
            )
        if not new.stream:
            return await self._object(scope, id)
        await self._stream(scope, send, id, _last_event_id(scope) or RunPosition(0))
        return None


class RunEndpoint(_RunsEndpoint):
    """`/v1/runs/{id}`"""

    async def _handle(self, scope: HttpScope, receive: Receive, send: Send) -> JsonObject | None:
        row = await self._row(scope)
        if scope["method"] != "DELETE":
            return await self._object(scope, row.id)
        if row.ended is None or not await self._store.delete_run(row.owner, row.id):
            message = f"the run is {row.status}: only a run that has ended can be deleted"
            raise HttpRejection(409, new_error("bad-request", message))
        return {"id": row.id, "object": "run.deleted", "deleted": True}


class RunEvents(_RunsEndpoint):
    """`/v1/runs/{id}/events`"""

    async def _handle(self, scope: HttpScope, receive: Receive, send: Send) -> JsonObject | None:
        row, query = await self._row(scope), _query(scope)
        after = int_param(query, "after", 0, 0, LARGEST)
        kinds = [kind for some in query.get("kinds", []) for kind in some.split(",")] or None
        for kind in kinds or ():
            if kind not in KINDS:
                raise BadRequest("kinds", f"{kind[:50]!r}; expected some of {', '.join(KINDS)}")
        with_parts = word_param(query, "parts", "false", "true") == "true"
        if word_param(query, "stream", "false", "true") == "true":
            position = _last_event_id(scope) or RunPosition(after)
            if with_parts and kinds is not None:
                raise BadRequest("parts", "only together with all kinds of events")
            await self._stream(scope, send, row.id, position, kinds, with_parts=with_parts)
            return None
        if with_parts:
            raise BadRequest("parts", "only together with stream=true")
        limit = int_param(query, "limit", PAGE_SIZE, 1, MAX_PAGE_SIZE)
        events = await self._store.run_events(row.id, after, limit + 1, kinds)
        page = [event_object(event) for event in events[:limit]]  # bodies are copied, not parsed
        return _list(page, "seq", more=len(events) > limit)


class _RunAction(_RunsEndpoint):
    """A post that changes a run; the answer is the run after it."""

    async def _handle(self, scope: HttpScope, receive: Receive, send: Send) -> JsonObject:
        row = await self._row(scope)
        body = await self._body(scope, receive)
        try:
            id = await self.act(row, body, scope)
        except IllegalEvent as error:
            now = await self._store.owned_run(row.owner, row.id) or row
            raise IllegalEvent(f"the run is {now.status}: {error}") from None
        return await self._object(scope, id)

    @abstractmethod
    async def act(self, row: RunRow, body: bytes, scope: HttpScope) -> str:
        """Returns the id of the run to answer with."""


class DecideApproval(_RunAction):
    """`/v1/runs/{id}/approvals`"""

    async def act(self, row: RunRow, body: bytes, scope: HttpScope) -> str:
        wanted = decode_body(_approval, body)
        await self._runtime.decide_approval(
            row.id,
            wanted.approval_id,
            wanted.approve,
            by=_actor(scope),
            reason=wanted.reason,
            scope=wanted.scope,
            owner=row.owner,
        )
        return row.id


class SubmitRunOutputs(_RunAction):
    """`/v1/runs/{id}/outputs`"""

    async def act(self, row: RunRow, body: bytes, scope: HttpScope) -> str:
        outputs = await for_body(body, _parse_outputs, body)
        await self._runtime.submit_outputs(row.id, outputs, owner=row.owner)
        return row.id


class ResolveCall(_RunAction):
    """`/v1/runs/{id}/resolve`"""

    async def act(self, row: RunRow, body: bytes, scope: HttpScope) -> str:
        wanted = decode_body(_resolve, body)
        if wanted.action != "done" and wanted.result is not None:
            raise BadRequest("result", f"only with the action done, not {wanted.action}")
        await self._runtime.resolve(
            row.id,
            wanted.call_id,
            wanted.action,
            by=_actor(scope),
            result=await for_body(body, _contents, wanted.result or "", "result"),
            is_error=wanted.is_error,
            owner=row.owner,
        )
        return row.id


class AddRunMessage(_RunAction):
    """`/v1/runs/{id}/messages`"""

    async def act(self, row: RunRow, body: bytes, scope: HttpScope) -> str:
        content = decode_body(_message, body).content
        if isinstance(content, str) and not content.strip():
            raise BadRequest("content", f"empty; expected a text, or {PARTS}")
        message = {"type": "message", "role": "user", "content": content}
        [parsed] = await for_body(body, _parse_items, [message], "content")
        if not parsed.content or any(isinstance(one, OpaqueContent) for one in parsed.content):
            raise BadRequest("content", f"expected a text, or {PARTS}")
        key = idempotency_key(scope) or ""
        await self._runtime.add_message(row.id, message, key=key, owner=row.owner)
        return row.id


class CancelRun(_RunAction):
    """`/v1/runs/{id}/cancel`"""

    async def _body(self, scope: HttpScope, receive: Receive) -> bytes:
        headers = headers_of(scope)
        size = headers.get(b"content-length", b"0")
        is_empty = size == b"0" and b"transfer-encoding" not in headers
        return b"{}" if is_empty else await super()._body(scope, receive)

    async def act(self, row: RunRow, body: bytes, scope: HttpScope) -> str:
        reason = decode_body(_cancel, body).reason
        await self._runtime.cancel(row.id, by=_actor(scope), reason=reason, owner=row.owner)
        return row.id


class ForkRun(_RunAction):
    """`/v1/runs/{id}/fork`"""

    async def act(self, row: RunRow, body: bytes, scope: HttpScope) -> str:
        after = decode_body(_fork, body).after
        key = idempotency_key(scope)
        return await self._runtime.fork(row.id, after, owner=row.owner, key=key)


class AgentsEndpoint(_RunsEndpoint):
    """`/v1/agents`: those that the key of the caller may use."""

    async def _handle(self, scope: HttpScope, receive: Receive, send: Send) -> JsonObject:
        known = self._runtime.agents
        names = self._gateway.usable_models(scope["weft.caller"], [*known])
        agents = [agent_object(known[name].definition) for name in names]
        return _list(agents, "id", more=False)


_new_run = msgspec.json.Decoder(_NewRunBody).decode
_approval = msgspec.json.Decoder(_ApprovalBody).decode
_outputs = msgspec.json.Decoder(_OutputsBody).decode
_resolve = msgspec.json.Decoder(_ResolveBody).decode
_message = msgspec.json.Decoder(_MessageBody).decode
_cancel = msgspec.json.Decoder(_CancelBody).decode
_fork = msgspec.json.Decoder(_ForkBody).decode


# Parts of requests


def _query(scope: HttpScope) -> Query:
    return parse_qs(scope["query_string"].decode("latin-1"))


def _list(items: Sequence[JsonObject], id: str, *, more: bool) -> JsonObject:
    """A list object, as those of OpenAI's API."""
    first, last = (items[0][id], items[-1][id]) if items else (None, None)
    return {
        "object": "list",
        "data": items,
        "first_id": first,
        "last_id": last,
        "has_more": more,
    }


def _actor(scope: HttpScope) -> str:
    """Who acts, for the log of the run: the name of the key."""
    return scope["weft.caller"] or "anonymous"


def _last_event_id(scope: HttpScope) -> RunPosition | None:
    raw = headers_of(scope).get(LAST_EVENT_ID)
    if raw is None:
        return None
    numbers = raw.decode("latin-1").split(".", 1)
    query = {"Last-Event-ID": numbers[:1]}, {"Last-Event-ID": numbers[1:] or ["0"]}
    return RunPosition(*(int_param(one, "Last-Event-ID", 0, 0, LARGEST) for one in query))


def _parse_run(body: bytes) -> _NewRunBody:
    """The request for a run, with an input that a turn can have. Raises BadRequest."""
    new = decode_body(_new_run, body)
    validate_metadata(new.metadata)
    input = new.input
    if isinstance(input, str):
        if not input.strip():
            raise BadRequest("input", "empty; expected a text, or items")
        return new
    _parse_items(input, "input")
    for place, item in enumerate(input):
        # Nothing could resolve it later, in another process and perhaps after a year.
        if history.read_shape(item).type == ITEM_REFERENCE:
            raise BadRequest(f"input[{place}]", "an item reference; expected the item itself")
    return new


def _parse_items(items: Sequence[object], field: str) -> Sequence[Message]:
    """Parses items as the input of a request, with whose errors the first turn would fail. Raises
    BadRequest, with the field's name in this request."""
    if not items:
        raise BadRequest(field, "empty; expected a text, or items")
    try:
        body = _json({"model": "any", "input": items})
        return api_of(RESPONSES).request.parse(body, Context()).request.messages
    except BadRequest as error:
        prefix = r"^input(\[0\]\.content)?" if field == "content" else "^input"
        raise BadRequest(re.sub(prefix, field, error.path), error.reason) from None


def _client_tools(tools: Sequence[Raw]) -> list[ToolSpec]:
    """The tools that the client runs itself. Raises BadRequest."""
    if not tools:
        return []
    body = {"model": "any", "input": "any", "tools": tools}
    parsed = api_of(RESPONSES).request.parse(_json(body), Context()).request
    found = []
    for place, tool in enumerate(parsed.tools):
        if tool.kind != "function":
            raise BadRequest(f"tools[{place}].type", f"{tool.kind[:50]!r}; expected function")
        if not TOOL_NAME.fullmatch(tool.name):
            expected = "expected 1 to 64 of a-z, A-Z, 0-9, _ and -"
            raise BadRequest(f"tools[{place}].name", expected)
        schema = tool.parameters if isinstance(tool.parameters, Raw) else Raw(b'{"type":"object"}')
        # A model that is asked with another schema refuses the whole turn.
        if not bytes(schema).lstrip().startswith(b"{"):
            expected = "expected a JSON Schema of an object"
            raise BadRequest(f"tools[{place}].parameters", expected)
        about = tool.description or ""
        digest = definition_digest(tool.name, about, schema, "once")
        found.append(ToolSpec(tool.name, about, schema, digest, kind="client"))
    return found


def _parse_outputs(body: bytes) -> list[CallOutput]:
    outputs = decode_body(_outputs, body).outputs
    if not outputs:
        raise BadRequest("outputs", "empty; expected one for each of some calls")
    return [
        CallOutput(one.call_id, _contents(one.output, f"outputs[{place}].output"), one.is_error)
        for place, one in enumerate(outputs)
    ]


def _contents(output: str | list[Raw], path: str) -> Contents:
    """What a tool returned: a text, or contents as a function_call_output has them. Raises
    BadRequest."""
    # The parser of requests reads it, so what is accepted here is what a turn can send.
    call = {"type": "function_call", "call_id": "a", "name": "a", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "a", "output": output}
    body = _json({"model": "any", "input": [call, result]})
    try:
        messages = api_of(RESPONSES).request.parse(body, Context()).request.messages
    except BadRequest as error:
        where = re.sub(r"^input\[1\]\.output", path, error.path)
        raise BadRequest(where, error.reason) from None
    [result_content] = messages[-1].content
    found = result_content.content if isinstance(result_content, ResultContent) else ()
    if isinstance(output, list) and len(found) != len(output):  # unknown ones are left out
        raise BadRequest(path, f"expected a text, or {PARTS}")
    return found
