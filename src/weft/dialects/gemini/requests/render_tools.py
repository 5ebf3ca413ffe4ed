"""Tools and the choice among them, written.

The client's tools stay the client's. Of the host's, only those that several wires have are
written for requests of other dialects, option by option.
"""

from collections.abc import Callable

import msgspec
from msgspec import UNSET, Raw, UnsetType

from weft.context import Context
from weft.dialects.asking.bridging import FREE, Names, schema_of, unasked
from weft.dialects.asking.leftovers import DECISIVE_FOR_TOOLS, drop, missing, written
from weft.dialects.asking.wording import described
from weft.dialects.gemini.quirks import quirks_of
from weft.dialects.gemini.requests import schema
from weft.dialects.gemini.requests.schema_subset import Subset
from weft.dialects.gemini.wire import NAME
from weft.dialects.requests import Losses
from weft.parts import Json
from weft.request import Hosted, Request, Tool, ToolChoice, ToolMode

_MODES: dict[ToolMode, str] = {"auto": "AUTO", "required": "ANY", "none": "NONE"}
_KEYS = {kind: key for key, kind in schema.HOSTED.items()}
_CLIENT = ("function", "custom")
_json = msgspec.json.Encoder().encode


class Tools:
    """Writes the tools of one request. Functions that follow one another are one entry."""

    def __init__(
        self, request: Request, context: Context, losses: Losses, names: Names, *, native: bool
    ) -> None:
        self._request = request
        self._losses = losses
        self._names = names
        self._native = native
        self._quirks = quirks_of(context)
        self.entries: list[Raw] = []
        self.bridged: frozenset[str] = frozenset()
        """The tools for free text that are declared as functions, by their own names."""
        self._functions: list[Raw] = []
        self._strict = False
        for place, tool in enumerate(request.tools):
            self._declare(tool, f"tools[{place}]")
        self._flush()

    def _flush(self) -> None:
        if self._functions:
            entry = schema.Declared(function_declarations=self._functions)
            self.entries.append(Raw(_json(entry)))
            self._functions = []

    def _entry(self, raw: Raw) -> None:
        self._flush()
        self.entries.append(raw)

    def choice(self) -> schema.CallingConfig | UnsetType:
        chosen = self._request.tool_choice
        if not self._native and not self.entries:
            if chosen not in (None, ToolChoice()):
                self._losses.warned("tool_choice", "left out: there are no tools")
            if self._request.parallel_tool_calls is False:
                self._losses.adapted("parallel_tool_calls", "left out: there are no tools")
            return UNSET
        self._one_at_a_time(chosen)
        strict = self._strict and not self._native
        if chosen is None:
            return schema.CallingConfig("VALIDATED") if strict else UNSET
        return self._chosen(chosen, strict)

    def _chosen(self, chosen: ToolChoice, strict: bool) -> schema.CallingConfig | UnsetType:
        if chosen.kind not in ("function", "custom"):
            self._losses.refused("tool_choice", f"a {chosen.kind} cannot be chosen here")
            return UNSET
        if chosen.name is not None:
            only = self._names.chosen(chosen.name, "tool_choice.name")
            return schema.CallingConfig("ANY", [only])
        mode = _MODES[chosen.mode]
        if mode == "AUTO" and (chosen.allowed or strict):
            mode = "VALIDATED"
        allowed = [
            self._names.chosen(name, f"tool_choice.allowed[{place}]")
            for place, name in enumerate(chosen.allowed)
        ]
        return schema.CallingConfig(mode, allowed or None)

    def _one_at_a_time(self, chosen: ToolChoice | None) -> None:
        if self._request.parallel_tool_calls is not False:
            return
        only = [tool for tool in self._request.tools if tool.kind in _CLIENT]
        several = len(only) > 1 and (chosen is None or chosen.name is None)
        if chosen is not None and chosen.mode == "required" and several:
            detail = "exactly one call cannot be asked for here; allow several"
            self._losses.refused("parallel_tool_calls", detail)
        else:
            self._losses.warned("parallel_tool_calls", "the model may make several calls at once")

    def _declare(self, tool: Tool, path: str) -> None:
        if tool.cache is not None:
            self._losses.warned(f"{path}.cache", "left out: there are no cache marks here")
        if tool.origin == NAME and self._native and isinstance(tool.raw, Raw):
            self._entry(tool.raw)
        elif tool.kind == "function":
            self._functions.append(self._function(tool, path))
        elif tool.kind == "custom":
            self._free(tool, path)
        elif tool.kind in _HOSTED:
            _HOSTED[tool.kind](self, tool, tool.hosted or Hosted(), path)
        else:
            missing(tool, path, self._losses, NAME)

    def _function(self, tool: Tool, path: str) -> Raw:
        name = self._names.spell(tool.name, tool.namespace, path)
        declared = schema.Declaration(name, tool.description)
        if tool.strict:
            self._strict = True
            self._losses.adapted(f"{path}.strict", "all calls are made to fit their schemas")
        self._fill(declared, tool.parameters, path)
        if self._native:
            return written(declared, tool.extra)
        drop(tool.extra, path, self._losses, NAME, DECISIVE_FOR_TOOLS)
        return Raw(_json(declared))

    def _fill(self, declared: schema.Declaration, parameters: Json, path: str) -> None:
        """Parameters; a tool that takes none has none."""
        if not isinstance(parameters, Raw) or not schema_of(parameters):
            return
        if self._quirks.json_schema:
            declared.parameters_json_schema = parameters
        else:
            declared.parameters = Subset(parameters, f"{path}.parameters", self._losses).schema()

    def _free(self, tool: Tool, path: str) -> None:
        self._losses.adapted(path, "free text is taken as an object with the key input")
        self.bridged |= {tool.name}
        name = self._names.spell(tool.name, tool.namespace, path)
        declared = schema.Declaration(name, described(tool, path, self._losses))
        self._fill(declared, FREE, path)
        self._functions.append(Raw(_json(declared)))

    # What the host runs

    def _search(self, tool: Tool, hosted: Hosted, path: str) -> None:
        if any(one.kind in _CLIENT for one in self._request.tools):
            # It is offered, not demanded; the wire refuses it beside functions.
            self._losses.warned(path, "left out: there is none beside functions here")
            return
        self._refused(
            path,
            allowed_domains=bool(hosted.allowed_domains),
            max_uses=hosted.max_uses is not None,
            location=hosted.location is not UNSET,
        )
        if hosted.context_size is not None:
            self._losses.warned(f"{path}.hosted.context_size", "cannot be told here; left out")
        options = schema.SearchOptions(list(hosted.blocked_domains) or None)
        drop(tool.extra, path, self._losses, NAME, DECISIVE_FOR_TOOLS)
        self._entry(Raw(_json({schema.SEARCH: options})))

    def _plain(self, tool: Tool, hosted: Hosted, path: str) -> None:
        self._refused(
            path,
            allowed_domains=bool(hosted.allowed_domains),
            blocked_domains=bool(hosted.blocked_domains),
            max_uses=hosted.max_uses is not None,
        )
        drop(tool.extra, path, self._losses, NAME, DECISIVE_FOR_TOOLS)
        self._entry(Raw(_json({_KEYS[tool.kind]: {}})))

    def _remote(self, tool: Tool, hosted: Hosted, path: str) -> None:
        if hosted.server_url is None:
            self._losses.refused(path, "a remote server needs its address here")
            return
        self._refused(path, allowed_tools=bool(hosted.allowed_tools))
        unasked(tool, path, self._losses, NAME)
        token = hosted.authorization
        headers = {"Authorization": f"Bearer {token}"} if token else None
        transport = schema.Transport(hosted.server_url, headers)
        server = schema.Server(hosted.server_label or tool.name, Raw(_json(transport)))
        self._entry(Raw(_json(schema.Declared(mcp_servers=[Raw(_json(server))]))))

    def _refused(self, path: str, **said: bool) -> None:
        for key, wanted in said.items():
            if wanted:
                detail = f"{key} is not available on the target; remove it"
                self._losses.refused(f"{path}.hosted.{key}", detail)


_HOSTED: dict[str, Callable[[Tools, Tool, Hosted, str], None]] = {
    "web-search": Tools._search,
    "web-fetch": Tools._plain,
    "code-execution": Tools._plain,
    "mcp": Tools._remote,
}
