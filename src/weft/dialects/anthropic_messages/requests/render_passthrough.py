"""Renders a request that came in this dialect.

It is sent in the bytes it came in, except for what was changed since. That is rendered from the
canonical fields, with the unknown keys it came with, and is not checked: whatever this API says to
it is for the client. Only what the host would reject because of its quirks is adapted.
"""

from msgspec import UNSET, Raw

from weft import large_json
from weft.context import Context
from weft.dialects.anthropic_messages.quirks import MessagesQuirks
from weft.dialects.anthropic_messages.requests import schema
from weft.dialects.anthropic_messages.requests.options import RENDERED_FROM
from weft.dialects.anthropic_messages.requests.render_blocks import BlockRenderer, S
from weft.dialects.anthropic_messages.requests.render_messages import (
    MessagesRenderer,
    RenderedMessage,
    without_unsigned_thinking,
)
from weft.dialects.anthropic_messages.requests.render_options import (
    TokenPlan,
    display,
    encode,
    output_config,
)
from weft.dialects.anthropic_messages.requests.render_tools import MessagesToolRenderer
from weft.dialects.anthropic_messages.wire import ID_LETTERS, NAME
from weft.dialects.requests.codec import Losses, Rendered, accepted_origins
from weft.dialects.requests.fields import fields_of
from weft.dialects.requests.names import ToolNameMap
from weft.dialects.requests.passthrough import source_body, source_fields, source_messages
from weft.dialects.requests.turns import (
    LocatedContent,
    Turn,
    message_turns,
    source_bytes,
    unknown_role_message,
)
from weft.dialects.requests.two_roles import losses_only_in_turns
from weft.dialects.requests.unknown_fields import collect, encode_with_extra
from weft.parts import Json
from weft.request import (
    CallContent,
    FileContent,
    ReasoningContent,
    Request,
    ResultContent,
    TextContent,
    Tool,
    ToolChoice,
)

_NAME_LIMIT = 128
"""The longest tool name that any host accepts: names from clients of this API are not cut."""

_EXECUTED_TYPES = frozenset({"server_tool_use", "mcp_tool_use"})


def render(request: Request, context: Context, quirks: MessagesQuirks, losses: Losses) -> Rendered:
    """As `render.render`, for a request that came in this dialect."""
    # Losses from here on tell whether rendering changed anything.
    losses_before = len(losses.found)
    names = ToolNameMap(request, ID_LETTERS, max(quirks.name_limit, _NAME_LIMIT), losses)
    blocks = _SourceBlockRenderer(context, losses, names)
    tools = _SourceToolRenderer(request, context, losses, names)
    system, messages = _SourceMessagesRenderer(request, quirks, losses, blocks).render()
    choice = tools.choice()
    plan = _token_plan(request, quirks)
    # A client that sends its own blocks back has the thinking where the API wants it; only a block
    # that was dropped here can be missing.
    if len(losses.found) > losses_before:
        plan = without_unsigned_thinking(plan, messages, losses)
    sampling, tier = request.sampling, request.service_tier
    body = schema.MessagesRequest(
        model=request.model,
        max_tokens=plan.max_tokens,
        messages=[],  # see below
        system=schema.to_raw(system) if isinstance(system, list) else system,
        tool_choice=encode(choice),
        mcp_servers=tools.mcp_servers or None,
        thinking=encode(plan.thinking),
        output_config=encode(output_config(request.output, plan.effort, losses)),
        stop_sequences=list(request.stop) or None,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        metadata=UNSET if request.user is None else encode(schema.Metadata(request.user)),
        service_tier=schema.SERVICE_TIERS.get(tier or "", tier),
        cache_control=schema.render_cache_control(request.cache, "", losses, ttl=quirks.cache_ttl),
        stream=request.stream or None,
    )
    # `effort` is in this extra but belongs to `output_config`: see `parse._parse_reasoning`.
    options = fields_of(request.reasoning.extra) if request.reasoning else {}
    thinking = {f"thinking.{key}": value for key, value in options.items() if key != "effort"}
    extra = collect(fields_of(request.extra), thinking)
    raw_fields = fields_of(encode_with_extra(body, extra, schema.NESTED))
    fields: dict[str, object] = {**raw_fields}
    if tools.tools:
        # In the order of the schema; encoded with all the rest, if they are not sent as they came.
        before = ("model", "max_tokens", "messages", "system")
        fields = {key: raw_fields[key] for key in before if key in raw_fields}
        fields["tools"] = tools.tools
        fields |= raw_fields
    # Then every key but `messages` still means what the client wrote, and keeps its bytes. Messages
    # keep theirs one by one.
    if losses_only_in_turns(request, losses.found[losses_before:]):
        fields = source_fields(source_body(request, NAME), request, fields, RENDERED_FROM)
    fields["messages"] = [message.sent for message in messages]
    return Rendered(large_json.write(fields), names.originals, tools.bridged)


def _token_plan(request: Request, quirks: MessagesQuirks) -> TokenPlan:
    limit = request.max_output_tokens
    limit = quirks.max_tokens if limit is None else limit
    options = request.reasoning
    if options is None:
        return TokenPlan(limit)
    if options.effort == "none":
        # Thinking is off, and the effort applies to the answer alone.
        kept = fields_of(options.extra).get("effort")
        found = [one for one in schema.EFFORTS.values() if kept == Raw(f'"{one}"'.encode())]
        disabled = schema.ThinkingConfigParam("disabled")
        return TokenPlan(limit, disabled, found[0] if found else None)
    thinking: schema.ThinkingConfigParam | None = None
    if options.budget_tokens is not None:
        thinking = schema.ThinkingConfigParam("enabled", options.budget_tokens, display(options))
    elif options.adaptive:
        thinking = schema.ThinkingConfigParam("adaptive", display=display(options))
    effort = schema.EFFORTS.get(options.effort) if options.effort else None
    return TokenPlan(limit, thinking, effort)


class _SourceMessagesRenderer(MessagesRenderer):
    """Keeps messages apart; one that is unchanged keeps its bytes."""

    _blocks: "_SourceBlockRenderer"

    def __init__(
        self,
        request: Request,
        quirks: MessagesQuirks,
        losses: Losses,
        blocks: "_SourceBlockRenderer",
    ) -> None:
        super().__init__(message_turns(request, losses), quirks, losses, blocks)
        self._sources = source_messages(source_body(request, NAME), request)

    def render_system(self, instructions: list[Turn]) -> str | list[schema.Encodable] | None:
        match instructions:
            case [
                Turn(path="instructions", contents=[LocatedContent(content=TextContent(text=text))])
            ]:
                return text
        return super().render_system(instructions)

    def system_block(self, located: LocatedContent) -> schema.Encodable | None:
        return self._blocks.render(located, "system")

    def files_to_move(self, turn: Turn) -> list[LocatedContent]:
        return []

    def render_message(self, turn: Turn) -> RenderedMessage:
        # The bytes are all that is known of it; role and blocks here are never used.
        whole = unknown_role_message(turn)
        if whole is not None:
            return RenderedMessage("user", [], source=whole)
        source = source_bytes(turn, self._sources)
        if source is not None and self._blocks.lose_nothing(turn.contents):
            return RenderedMessage("user", [], source=source)
        losses_before = len(self._losses.found)
        message = super().render_message(turn)
        if len(self._losses.found) == losses_before:
            message.source = source
        return message

    def join(self, rendered: list[tuple[Turn, RenderedMessage]]) -> list[RenderedMessage]:
        # Order and roles are the client's: the API accepts a prefill and merges neighbours itself.
        return [message for _, message in rendered]


class _SourceBlockRenderer(BlockRenderer):
    """Renders every block that a client of this API may send."""

    def __init__(self, context: Context, losses: Losses, names: ToolNameMap) -> None:
        super().__init__(context, losses, names)
        self._origins = accepted_origins(context, NAME, native=True)

    def lose_nothing(self, contents: list[LocatedContent]) -> bool:
        """Whether these are texts, calls and results of which nothing gets lost: then there is no
        need to render them to find that out.
        """
        for located in contents:
            match located.content:
                case TextContent(cache=None):
                    continue
                case CallContent(id=id, name=name, namespace=namespace, kind="function") as call:
                    if call.provider_executed or not self._names.is_legal(name, namespace):
                        return False
                case ResultContent(id=id, cache=None, content=inner):
                    for one in inner:
                        if one.__class__ is not TextContent or one.cache is not None:
                            return False
                case _:
                    return False
            if not self._call_ids.is_legal(id):
                return False
        return True

    def kept_extra(self, extra: Json, path: str) -> Json:
        return extra

    def other_source(self, path: str, source: S, supported: str) -> S | None:
        return source

    def text(self, path: str, content: TextContent, role: str) -> schema.Encodable | None:
        # A search result without citations was parsed as text; the block itself is in its extra.
        search_result = fields_of(content.extra).get("search_result")
        if search_result:
            return search_result
        block = schema.TextBlockParam(content.text, self._cache_control(content.cache, path))
        return self._encode(block, content.extra, path)

    def file(self, path: str, content: FileContent, role: str) -> schema.Encodable | None:
        return self._document(path, content)

    def reasoning(self, path: str, content: ReasoningContent, role: str) -> schema.Encodable | None:
        # Hosts that imitate the API and sign nothing want their own thinking back.
        if content.origin is None and self._quirks.unsigned_thinking:
            thinking = schema.ThinkingBlockParam(content.text, content.signature)
            return self._encode(thinking, content.extra, path)
        return super().reasoning(path, content, role)

    def tool_use(self, path: str, content: CallContent, role: str) -> schema.Encodable | None:
        if content.provider_executed and content.kind in _EXECUTED_TYPES:
            # Neither id nor name is rewritten: the result that follows is in the host's own block.
            params = Raw(content.params.encode())
            block = schema.ToolUseBlockParam(content.kind, content.id, content.name, params)
            return self._encode(block, content.extra, path)
        return super().tool_use(path, content, role)

    def tool_result(self, path: str, content: ResultContent, role: str) -> schema.Encodable | None:
        whole_list = "content" in fields_of(content.extra)  # it stands for the parsed content
        return self._tool_result(path, content, () if whole_list else content.content)


class _SourceToolRenderer(MessagesToolRenderer):
    """Declares tools in the bytes they came in."""

    def choice(self) -> schema.ToolChoiceParam | None:
        chosen, parallel = self._request.tool_choice, self._request.parallel_tool_calls
        if chosen is None and parallel is None:
            return None
        param = self.render_choice(chosen or ToolChoice())
        if param is not None and parallel is not None:
            param.disable_parallel_tool_use = not parallel
        return param

    def declare(self, tool: Tool, path: str) -> None:
        # Client tools have no raw declaration: their canonical fields and `extra` say it all.
        if tool.origin != NAME or not isinstance(tool.raw, Raw):
            super().declare(tool, path)
        elif tool.kind == "mcp":
            declaration = fields_of(tool.raw)
            if "mcp_toolset" in declaration:
                self.tools.append(declaration["mcp_toolset"])
            if "mcp_server" in declaration:
                self.mcp_servers.append(declaration["mcp_server"])
        else:
            self.tools.append(tool.raw)

    def kept_extra(self, extra: Json, path: str) -> Json:
        return extra

    def input_schema(self, parameters: Json, path: str) -> Raw:
        return parameters if isinstance(parameters, Raw) else super().input_schema(parameters, path)
