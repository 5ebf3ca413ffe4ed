"""The route table: which endpoint answers which path."""

from collections.abc import Mapping
from dataclasses import dataclass

from starlette.routing import BaseRoute, Route

from weft.gateway.agents import AgentService
from weft.gateway.apis import CHAT_COMPLETIONS, GENERATE_CONTENT, MESSAGES, RESPONSES
from weft.gateway.compaction import CompactResponse
from weft.gateway.conversations import (
    ConversationEndpoint,
    ConversationItem,
    ConversationItems,
    ConversationsEndpoint,
)
from weft.gateway.endpoints import Endpoint, GatewayContext, GeminiEndpoint, MessagesEndpoint
from weft.gateway.lists import ListResponses
from weft.gateway.models import ModelsEndpoint
from weft.gateway.responses import ResponsesEndpoint, StoringEndpoint, StoringMessagesEndpoint
from weft.gateway.rules import RulesEndpoint
from weft.gateway.runs import (
    AddRunMessage,
    AgentsEndpoint,
    CancelRun,
    DecideApproval,
    ForkRun,
    ResolveCall,
    RunEndpoint,
    RunEvents,
    RunsEndpoint,
    SubmitRunOutputs,
)
from weft.gateway.sessions import Sessions
from weft.gateway.stored_completions import (
    CompletionEndpoint,
    CompletionMessages,
    ListCompletions,
)
from weft.gateway.stored_responses import (
    CancelResponse,
    InputItems,
    ResponseFindings,
    ResponseUsage,
    ResumeStream,
    StoredResponseEndpoint,
)
from weft.gateway.token_counting import CountTokens, InputTokens
from weft.gateway.tool_outputs import ToolOutputsEndpoint
from weft.gateway.traces import ResponseCase, StoredTrace, TraceDiff, UploadedTrace
from weft.relay.routing import Routing
from weft.scrub import Scrubber

POST = ["POST"]
GET = ["GET"]


@dataclass(frozen=True, slots=True)
class RouteTable:
    """The endpoints of the dialects."""

    direct: Mapping[str, Endpoint]
    """What takes nearly every POST, by path: found without the router."""

    resumed: Mapping[str, ResumeStream]
    """The same for a POST with Last-Event-ID."""

    routes: list[BaseRoute]


def route_table(
    gateway: GatewayContext,
    routing: Routing,
    sessions: Sessions | None,
    agents: AgentService | None,
    scrub: Scrubber,
) -> RouteTable:
    """Returns the routes; those of stored responses and of runs only if there is a store."""
    # Without a store. With one, the same paths store what they answer.
    direct: dict[str, Endpoint] = {
        "/v1/chat/completions": Endpoint(gateway, CHAT_COMPLETIONS),
        "/v1/responses": Endpoint(gateway, RESPONSES),
        "/v1/messages": MessagesEndpoint(gateway, MESSAGES),
    }
    resumed: dict[str, ResumeStream] = {}
    stored: list[BaseRoute] = []
    if sessions is not None:
        direct = {
            "/v1/chat/completions": StoringEndpoint(gateway, CHAT_COMPLETIONS, sessions),
            "/v1/responses": ResponsesEndpoint(gateway, RESPONSES, sessions),
            "/v1/messages": StoringMessagesEndpoint(gateway, MESSAGES, sessions),
        }
        resumed = {
            "/v1/chat/completions": ResumeStream(sessions, CHAT_COMPLETIONS, gateway.keepalive),
            "/v1/messages": ResumeStream(sessions, MESSAGES, gateway.keepalive),
        }
        stored = _stored_routes(gateway, sessions, scrub)
    models = ModelsEndpoint(gateway, routing)
    tokens = InputTokens(gateway, routing, sessions)
    message_tokens = CountTokens(gateway, routing, MESSAGES)
    routes = [
        # Starlette takes the first route that matches, so fixed names stand before `{id}`.
        Route("/v1/responses/compact", CompactResponse(gateway, sessions), methods=POST),
        Route("/v1/responses/input_tokens", tokens, methods=POST),
        *stored,
        *([] if agents is None else _agent_routes(gateway, agents)),
        *(Route(path, endpoint, methods=POST) for path, endpoint in direct.items()),
        Route("/v1/messages/count_tokens", message_tokens, methods=POST),
        # some clients leave `models/` out if the name of a model has a slash
        Route("/v1beta/{call:path}", GeminiEndpoint(gateway, GENERATE_CONTENT), methods=POST),
        Route("/v1/trace", UploadedTrace(), methods=POST),
        Route("/v1/trace/diff", TraceDiff(gateway, sessions, scrub), methods=POST),
        Route("/v1/rules", RulesEndpoint(), methods=GET),
        # `path`: the id of a rule has a slash (`lifecycle/truncated`).
        Route("/v1/rules/{code:path}", RulesEndpoint(), methods=GET),
        Route("/v1/models", models, methods=GET),
        # `path`: the name of a model has a slash (`openai/gpt-5`).
        Route("/v1/models/{id:path}", models, methods=GET),
        Route("/v1beta/models", models, methods=GET),
        Route("/v1beta/models/{id:path}", models, methods=GET),
    ]
    return RouteTable(direct, resumed, routes)


def _stored_routes(gateway: GatewayContext, sessions: Sessions, scrub: Scrubber) -> list[BaseRoute]:
    """The routes of stored responses, chat completions and conversations."""
    response = "/v1/responses/{id}"
    completion = "/v1/chat/completions/{id}"
    conversation = "/v1/conversations/{id}"
    get_or_delete, any_method = [*GET, "DELETE"], [*GET, *POST, "DELETE"]
    retrieve = StoredResponseEndpoint(sessions, gateway.keepalive)
    submit = ToolOutputsEndpoint(gateway, sessions)
    item = ConversationItem(gateway, sessions)
    conversations = ConversationsEndpoint(gateway, sessions)
    return [
        Route("/v1/responses", ListResponses(gateway, sessions), methods=GET),
        Route(response, retrieve, methods=get_or_delete),
        Route(f"{response}/input_items", InputItems(sessions), methods=GET),
        Route(f"{response}/findings", ResponseFindings(sessions), methods=GET),
        Route(f"{response}/usage", ResponseUsage(sessions), methods=GET),
        Route(f"{response}/trace", StoredTrace(sessions, scrub), methods=GET),
        Route(f"{response}/case", ResponseCase(sessions, scrub), methods=GET),
        Route(f"{response}/cancel", CancelResponse(sessions), methods=POST),
        Route(f"{response}/submit_tool_outputs", submit, methods=POST),
        Route("/v1/chat/completions", ListCompletions(gateway, sessions), methods=GET),
        Route(completion, CompletionEndpoint(gateway, sessions), methods=any_method),
        Route(f"{completion}/messages", CompletionMessages(gateway, sessions), methods=GET),
        Route("/v1/conversations", conversations, methods=[*GET, *POST]),
        Route(conversation, ConversationEndpoint(gateway, sessions), methods=any_method),
        Route(f"{conversation}/items", ConversationItems(gateway, sessions), methods=[*GET, *POST]),
        Route(f"{conversation}/items/{{item_id}}", item, methods=get_or_delete),
    ]


def _agent_routes(gateway: GatewayContext, agents: AgentService) -> list[BaseRoute]:
    run = "/v1/runs/{id}"
    actions = {
        "approvals": DecideApproval(gateway, agents),
        "outputs": SubmitRunOutputs(gateway, agents),
        "resolve": ResolveCall(gateway, agents),
        "messages": AddRunMessage(gateway, agents),
        "cancel": CancelRun(gateway, agents),
        "fork": ForkRun(gateway, agents),
    }
    return [
        Route("/v1/agents", AgentsEndpoint(gateway, agents), methods=GET),
        Route("/v1/runs", RunsEndpoint(gateway, agents), methods=[*GET, *POST]),
        Route(run, RunEndpoint(gateway, agents), methods=[*GET, "DELETE"]),
        Route(f"{run}/events", RunEvents(gateway, agents), methods=GET),
        *(Route(f"{run}/{name}", action, methods=POST) for name, action in actions.items()),
    ]
