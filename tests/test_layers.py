"""The import law: values, then law, then codecs, then I/O; a module imports downward.

Read from the syntax tree, so that an import hidden inside a function counts like any other.
"""

import ast
import functools
import re
import sys
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import get_args

import pytest

from weft.dialect_names import DialectName

SOURCE = Path(__file__).parents[1] / "src" / "weft"

LAYERS: dict[str, tuple[str, ...]] = {
    "errors": ("weft.errors",),
    "L0 values": (
        "weft.dialect_names",
        "weft.parts",
        "weft.request",
        "weft.findings",
        "weft.ids",
        "weft.context",
        "weft.large_json",
        "weft.partial_json",
    ),
    "L1 law": (
        "weft.sse",
        "weft.lifecycle",
        "weft.assembler",
        "weft.calls",
        "weft.guard",
    ),
    "L2 dialects": (
        "weft.dialects.rules",
        "weft.dialects.validation",
        "weft.dialects.validation.untyped",
        "weft.dialects.validation.reporter",
        "weft.dialects.error_classes",
        "weft.dialects.openai_errors",
        "weft.dialects.replay",
        "weft.dialects.envelope",
        "weft.dialects.requests",
        "weft.dialects.requests.codec",
        "weft.dialects.json_string",
        "weft.dialects.raw_json",
        "weft.dialects.delta_templates",
        "weft.dialects.frames",
        "weft.dialects.base",
        "weft.dialects.requests.fields",
        "weft.dialects.requests.names",
        "weft.dialects.requests.reasoning",
        "weft.dialects.requests.data_urls",
        "weft.dialects.requests.strict_schemas",
        "weft.dialects.requests.multi_tool_use",
        "weft.dialects.requests.source_dialects",
        "weft.dialects.requests.unknown_fields",
        "weft.dialects.requests.turns",
        "weft.dialects.requests.tools",
        "weft.dialects.requests.openai_family",
        "weft.dialects.requests.passthrough",
        "weft.dialects.requests.two_roles",
        "weft.dialects.stages",
        "weft.dialects.stages.*",
        "weft.dialects.*",
        "weft.dialects.*.wire",
        "weft.dialects.*.quirks",
        # what the checker knows
        "weft.dialects.*.validation",
        "weft.dialects.*.validation.required",
        "weft.dialects.*.validation.state",
        "weft.dialects.*.validator",
        # requests
        "weft.dialects.*.requests",
        "weft.dialects.*.requests.schema",
        "weft.dialects.*.requests.options",
        "weft.dialects.*.requests.passthrough",
        "weft.dialects.*.requests.schema_subset",
        "weft.dialects.*.requests.models",
        "weft.dialects.*.requests.parse_messages",
        "weft.dialects.*.requests.parse_items",
        "weft.dialects.*.requests.parse_tools",
        "weft.dialects.*.requests.parse",
        "weft.dialects.*.requests.render_tools",
        "weft.dialects.*.requests.render_blocks",
        "weft.dialects.*.requests.render_items",
        "weft.dialects.*.requests.render_options",
        "weft.dialects.*.requests.render_messages",
        "weft.dialects.*.requests.render_passthrough",
        "weft.dialects.*.requests.render",
        "weft.dialects.*.request",
        # streams
        "weft.dialects.*.errors",
        "weft.dialects.*.*",
        "weft.dialects.*.decoding",
        "weft.dialects.*.decoding.item",
        "weft.dialects.*.decoding.declared_tools",
        "weft.dialects.*.decoding.state",
        "weft.dialects.*.decoding.partial_args",
        "weft.dialects.*.decoding.*",
        "weft.dialects.*.decoding.output_items",
        "weft.dialects.*.decoder",
        "weft.dialects.*.encoding",
        "weft.dialects.*.encoding.delta_field",
        "weft.dialects.*.encoding.call_kinds",
        "weft.dialects.*.encoding.events",
        "weft.dialects.*.encoding.items",
        "weft.dialects.*.encoding.call_items",
        "weft.dialects.*.encoding.*",
        "weft.dialects.*.encoder",
        "weft.dialects.*.dialect",
        "weft.dialects",
    ),
    "the verbs": ("weft.arguments", "weft.assembled", "weft.codec", "weft.captures"),
    "L3 edges": (
        "weft.check.clients",
        "weft.check.lifecycle",
        "weft.check.sse_lines",
        "weft.check.rules",
        "weft.check.deduplication",
        "weft.check.checker",
        "weft.check.report",
        "weft.check.*",
        "weft.check",
        "weft.trace",
        "weft.trace_diff",
        "weft.cases",
        "weft.scrub",
        "weft.prices",
        "weft.upstream",
        "weft.upstream.urls",
        "weft.log_events",
        "weft.upstream.base",
        "weft.upstream.retry",
        "weft.upstream.breaker",
        "weft.upstream.catalog",
        "weft.upstream.dialing",
        "weft.upstream.connection",
        "weft.upstream.http",
        "weft.upstream.discovery",
        "weft.upstream.demo.broken",
        "weft.upstream.demo.message_values",
        "weft.upstream.demo.signatures",
        "weft.upstream.demo.schema_samples",
        "weft.upstream.demo.texts",
        "weft.upstream.demo.scripts",
        "weft.upstream.demo.timeline",
        "weft.upstream.demo.upstream",
        "weft.upstream.demo",
        "weft.upstream.replay",
        "weft.upstream.chaos",
        "weft.store",
        "weft.store.queries",
        "weft.store.records",
        "weft.store.base",
        "weft.store.accounts",
        "weft.store.escaping",
        "weft.store.migrations",
        "weft.store.conversations",
        "weft.store.runs",
        "weft.store.operations",
        "weft.store.jobs",
        "weft.store.writer",
        "weft.store.checkpoints",
        "weft.store.lockfile",
        "weft.store.leases",
        "weft.store.sql",
        "weft.store.sqlite",
        "weft.store.postgres",
        "weft.store.urls",
    ),
    "L4 relay": (
        "weft.relay",
        "weft.relay.routing",
        "weft.relay.offload",
        "weft.relay.trace_context",
        "weft.relay.incoming",
        "weft.relay.metering",
        "weft.relay.reasoning",
        "weft.relay.translation",
        "weft.relay.direct_line",
        "weft.relay.deadlines",
        "weft.relay.request_record",
        "weft.relay.recording",
        "weft.relay.redaction",
        "weft.relay.paused_turns",
        "weft.relay.rendering",
        "weft.relay.fast_lane",
        "weft.relay.response_reader",
        "weft.relay.log",
        "weft.relay.history",
        "weft.relay.checksum",
        "weft.relay.recovery",
        "weft.relay.persistence",
        "weft.relay.orphans",
        "weft.relay.rerun",
        "weft.relay.replay_variants",
        "weft.relay.comparison",
        "weft.relay.audit",
        "weft.relay.stream",
        "weft.relay.persisted_stream",
        "weft.relay.failover",
        "weft.relay.run",
    ),
    "L5 agent": (
        "weft.agent",
        "weft.agent.tool_spec",
        "weft.agent.definition",
        "weft.agent.events",
        "weft.agent.lifecycle",
        "weft.agent.results",
        "weft.agent.state",
        "weft.agent.status",
        "weft.agent.run_trace",
        "weft.agent.tool_schema",
        "weft.agent.tool_execution",
        "weft.agent.tools",
        "weft.agent.demo",
        "weft.agent.mcp_addresses",
        "weft.agent.mcp_config",
        "weft.agent.mcp_stdio",
        "weft.agent.mcp_http",
        "weft.agent.mcp_connection",
        "weft.agent.mcp",
        "weft.agent.children",
        "weft.agent.agents",
        "weft.agent.gate",
        "weft.agent.decide",
        "weft.agent.turns",
        "weft.agent.conversations",
        "weft.agent.merge",
        "weft.agent.descendants",
        "weft.agent.environment",
        "weft.agent.claimed_run",
        "weft.agent.driver",
        "weft.agent.models",
        "weft.agent.dispatch",
        "weft.agent.pgqueuer_dispatch",
        "weft.agent.followers",
        "weft.agent.runtime",
        "weft.agent.library",
        "weft.agent.run_reader",
        "weft.agent.segment",
        "weft.agent.upstream",
    ),
    "the public names": ("weft",),
    "L6 gateway": (
        "weft.gateway",
        "weft.gateway.settings.line_numbers",
        "weft.gateway.settings.problems",
        "weft.gateway.settings.schema",
        "weft.gateway.settings.reader",
        "weft.gateway.settings.environment",
        "weft.gateway.settings.aliases",
        "weft.gateway.settings.secrets",
        "weft.gateway.settings.validation",
        "weft.gateway.settings.upstreams",
        "weft.gateway.settings.agents",
        "weft.gateway.settings.otel",
        "weft.gateway.settings",
        "weft.gateway.apis",
        "weft.gateway.uvicorn_internals",
        "weft.gateway.descriptors",
        "weft.gateway.auth",
        "weft.gateway.keys",
        "weft.gateway.remote_urls",
        "weft.gateway.ledger",
        "weft.gateway.limits",
        "weft.gateway.allocator",
        "weft.gateway.memory",
        "weft.gateway.connections",
        "weft.gateway.request_head",
        "weft.gateway.buffered_transport",
        "weft.gateway.access",
        "weft.gateway.error_responses",
        "weft.gateway.exchange",
        "weft.gateway.http_protocol",
        "weft.gateway.websocket_protocol",
        "weft.gateway.server",
        "weft.gateway.side_server",
        "weft.gateway.workers",
        "weft.gateway.log_text",
        "weft.gateway.logs",
        "weft.gateway.worker_metrics",
        "weft.gateway.metrics",
        "weft.gateway.telemetry",
        "weft.gateway.bodies",
        "weft.gateway.keepalive_timer",
        "weft.gateway.writers",
        "weft.gateway.http_response",
        "weft.gateway.endpoints",
        "weft.gateway.models",
        "weft.gateway.sessions",
        "weft.gateway.background",
        "weft.gateway.token_counting",
        "weft.gateway.compaction",
        "weft.gateway.stored_responses",
        "weft.gateway.usage",
        "weft.gateway.store_endpoint",
        "weft.gateway.stored_completions",
        "weft.gateway.conversations",
        "weft.gateway.lists",
        "weft.gateway.rules",
        "weft.gateway.traces",
        "weft.gateway.responses",
        "weft.gateway.tool_outputs",
        "weft.gateway.agents",
        "weft.gateway.run_objects",
        "weft.gateway.runs",
        "weft.gateway.routes",
        "weft.gateway.page_files",
        "weft.gateway.response_cache",
        "weft.gateway.websocket",
        "weft.gateway.probes",
        "weft.gateway.router_errors",
        "weft.gateway.hooks",
        "weft.gateway.reload",
        "weft.gateway.app",
    ),
    "the command line": (
        "weft.cli",
        "weft.cli.captures",
        "weft.cli.open_store",
        "weft.cli.agents",
        "weft.cli.store_check",
        "weft.cli.upstream_check",
        "weft.cli.config",
        "weft.cli.banner",
        "weft.cli.trace",
        "weft.cli.upstream_server",
        "weft.cli.*",
        "weft.cli.program",
        "weft.cli.commands.*",
        "weft.cli.commands",
        "weft.cli.main",
        "weft.__main__",
    ),
}
"""A module imports only from rows above its own; `*` is any one name, and the modules that share
such a row do not import one another."""

PLACES = [place for places in LAYERS.values() for place in places]
PATTERNS = [re.compile(re.escape(row).replace(r"\*", "[a-z0-9_]+")) for row in PLACES]
PURE = ("errors", "L0 values", "L1 law", "L2 dialects")
IMPURE = re.compile(
    "asyncio|concurrent|datetime|http|importlib|io|logging|multiprocessing|os|pathlib|queue|random|"
    "secrets|select|selectors|shutil|signal|socket|sqlite3|ssl|subprocess|tempfile|threading|time|"
    "urllib|uuid"
)
"""What reaches a clock, chance, a thread, a file or a wire: from `codec.py` on, not before."""
IMPURE_CALLS = frozenset({"open", "print", "input", "exec", "eval", "__import__"})

VENDORS = re.compile(
    "ai21|alibaba|anthropic|azure|baidu|bedrock|bifrost|cerebras|chatgpt|claude|cloudflare|codex|"
    "cohere|copilot|dashscope|databricks|deepinfra|deepseek|doubao|ernie|fireworks|friendli|gemini|"
    "github|google|gpt-|grok|groq|hugging|hunyuan|hyperbolic|inception|kimi|litellm|llama|lmstudio|"
    "minimax|mistral|mixtral|moonshot|nebius|novita|nvidia|openai|openrouter|perplexity|portkey|"
    "qwen|sambanova|sglang|siliconflow|snowflake|stepfun|tencent|vercel|vertex|vllm|volcengine|"
    "watsonx|xai|zhipu"
)
OWNERS = frozenset({"anthropic", "gemini", "google", "openai"})
"""Those whose wire a dialect is named after: prose may say whose wire it is."""
DIALECT_NAMES = re.compile(
    r"openai[-_](chat|responses)|anthropic[-_]messages|dialects\.gemini|\"gemini\"|\{\"google\": |"
    r"(?-i:Gemini(?=[A-Z]))|"  # classes of the dialect of that name
    r"openai_(errors|family)|(?-i:OpenAI(?=Error|Family)|OPENAI(?=_CODES))|"  # of two dialects
    r"type\.googleapis\.com/google\.rpc|googleSearch|anthropic-(version|beta|ratelimit)",  # words
    re.IGNORECASE,
)


def modules() -> dict[str, Path]:
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = ("weft", *path.relative_to(SOURCE).with_suffix("").parts)
        found[".".join(parts).removesuffix(".__init__")] = path
    return found


MODULES = modules()


@functools.cache
def parsed(module: str) -> ast.Module:
    path = MODULES[module]
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


@functools.cache
def nodes_of(module: str) -> list[ast.AST]:
    """All of a module's syntax tree, walked once for all tests."""
    return list(ast.walk(parsed(module)))


def imports(nodes: Iterable[ast.AST]) -> list[str]:
    """Every module that is imported, wherever: weft's own by their full names."""
    found: list[str] = []
    for node in nodes:
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: a relative import"
            module = node.module or ""
            names = [f"{module}.{alias.name}" for alias in node.names]
            found += [name if name in MODULES else module for name in names]
    return found


@functools.cache
def place(module: str) -> int | None:
    """The row of a module: of those that fit, the one that says most."""
    fitting = [
        (row.count("*"), number)
        for number, (row, pattern) in enumerate(zip(PLACES, PATTERNS, strict=True))
        if pattern.fullmatch(module)
    ]
    return min(fitting)[1] if fitting else None


def layer(module: str) -> str | None:
    number = place(module)
    if number is None:
        return None
    return next(name for name, rows in LAYERS.items() if PLACES[number] in rows)


SHARED = ("stages", "requests", "validation")


def dialect_folder(module: str) -> str | None:
    names = module.split(".")
    if names[:2] != ["weft", "dialects"] or len(names) < 4 or names[2] in SHARED:
        return None
    return names[2]


def trespasses(module: str, imported: str) -> str:
    """Why one module of weft may not import another, or nothing."""
    here, there = place(module), place(imported)
    if here is None or there is None:
        return f"{imported if there is None else module} has no row in LAYERS"
    if there >= here:
        return f"{module} imports {imported}, which is not above it"
    folder, other = dialect_folder(module), dialect_folder(imported)
    if folder and other and folder != other:
        return f"{module} imports {imported}: dialects never import one another"
    return ""


# Whole trees are compared, not a test for each module: there are hundreds.


def test_modules_import_only_from_above() -> None:
    own = [
        (module, name)
        for module in MODULES
        for name in imports(nodes_of(module))
        if name.split(".")[0] == "weft"
    ]
    assert [why for module, name in own if (why := trespasses(module, name))] == []


def test_every_module_has_a_row() -> None:
    assert [module for module in MODULES if place(module) is None] == []


def test_every_row_has_a_module() -> None:
    filled = {place(module) for module in MODULES}
    assert [row for number, row in enumerate(PLACES) if number not in filled] == []


@pytest.mark.parametrize(
    ("module", "imported"),
    [
        ("weft.parts", "weft.guard"),
        ("weft.parts", "weft.request"),
        ("weft.sse", "weft.calls"),
        ("weft.errors", "weft.parts"),
        ("weft.guard", "weft.dialects.base"),
        ("weft.lifecycle", "weft"),
        ("weft.dialects.openai_chat.wire", "weft.dialects.openai_chat.decoder"),
        ("weft.dialects.openai_chat.decoder", "weft.dialects.openai_responses.wire"),
        ("weft.dialects.openai_chat.wire", "weft.dialects.openai_chat.helper"),
        ("weft.dialects.openai_chat.helper", "weft.dialects.openai_chat.decoder"),
        ("weft.dialects.openai_chat.helper", "weft.dialects.openai_chat.other"),
        ("weft.dialects.stages.think_tags", "weft.dialects.stages.markup_calls"),
        ("weft.dialects.stages.think_tags", "weft.dialects.openai_chat.wire"),
        ("weft.dialects.openai_chat.dialect", "weft.dialects"),
        ("weft.codec", "weft.cli.main"),
        ("weft.cli.parts", "weft.cli.assemble"),
        ("weft.cli.parts", "weft.utils"),
    ],
)
def test_the_law_forbids(module: str, imported: str) -> None:
    assert trespasses(module, imported)


def pure() -> list[str]:
    return [module for module in MODULES if layer(module) in PURE]


def test_values_law_and_codecs_reach_no_clock_no_chance_and_no_io() -> None:
    assert pure()
    assert [
        (module, name)
        for module in pure()
        for name in imports(nodes_of(module))
        if IMPURE.fullmatch(name.split(".")[0])
    ] == []
    called = [
        (module, node.func.id)
        for module in pure()
        for node in nodes_of(module)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    ]
    assert [(module, name) for module, name in called if name in IMPURE_CALLS] == []


DEPENDENCIES = {
    "weft.upstream.connection": {"httptools"},
    "weft.store.postgres": {"asyncpg"},
    "weft.agent.pgqueuer_dispatch": {"asyncpg", "pgqueuer"},
    "weft.agent.mcp_stdio": {"anyio", "mcp", "mcp_types"},
    "weft.agent.mcp_http": {"httpx2", "mcp", "mcp_types"},
    "weft.agent.mcp_connection": {"mcp", "mcp_types", "pydantic"},
    "weft.gateway": {"httptools", "starlette", "uvicorn", "websockets"},
    "weft.gateway.metrics": {"prometheus_client"},
    "weft.gateway.worker_metrics": {"prometheus_client"},
    "weft.gateway.telemetry": {"opentelemetry"},
    "weft.cli": {"click", "rich"},
    "weft.cli.upstream_server": {"uvicorn"},
}
"""What a module, or a folder, may import beside msgspec; nothing else imports more than that."""


def foreign_imports(module: str) -> set[str]:
    """The packages that a module may not import."""
    roots = {name.split(".")[0] for name in imports(nodes_of(module))}
    granted = [
        names
        for place, names in DEPENDENCIES.items()
        if module == place or module.startswith(f"{place}.")
    ]
    return roots - sys.stdlib_module_names - {"msgspec", "weft"}.union(*granted)


def test_msgspec_is_the_only_dependency_of_the_core() -> None:
    assert {module: names for module in MODULES if (names := foreign_imports(module))} == {}


def test_nothing_is_imported_inside_a_function() -> None:
    found = {module: inner_imports(nodes_of(module)) for module in MODULES}
    assert {module: names for module, names in found.items() if names} == {}


def inner_imports(nodes: Iterable[ast.AST]) -> list[str]:
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return [name for function in functions for name in imports(ast.walk(function))]


def test_an_import_inside_a_function_is_seen() -> None:
    tree = ast.parse("async def one():\n    if 1:\n        import time\nclass A:\n    import os\n")
    assert inner_imports(ast.walk(tree)) == ["time"]
    assert imports(ast.walk(tree)) == ["os", "time"]


# No codec names a vendor


def prose(tree: ast.AST) -> list[ast.Constant]:
    """Docstrings, and the strings that stand alone below a value to describe it."""
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    ]


def vendors_named(source: str) -> list[str]:
    """Vendors in a codec, as `line: word`.

    In code (identifiers, attributes, imports, string literals) no vendor's name may stand, save
    as part of a dialect's. Prose (docstrings and comments) may say whose wire it is, since the
    wires have no other name, but not whose accent: an accent is data, and its evidence is a
    capture.
    """
    lines = source.splitlines()
    is_prose = {
        line
        for text in prose(ast.parse(source))
        for line in range(text.lineno, (text.end_lineno or text.lineno) + 1)
    }
    found = []
    for number, line in enumerate(lines, 1):
        text = DIALECT_NAMES.sub("", line).lower()
        if number in is_prose or text.lstrip().startswith("#"):
            code, remark = "", text
        else:
            code, _, remark = text.partition("  # ")
        named = VENDORS.findall(code) + [
            word for word in VENDORS.findall(remark) if word not in OWNERS
        ]
        found += [f"{number}: {word}" for word in named]
    return found


def test_no_codec_names_a_vendor() -> None:
    paths = sorted((SOURCE / "dialects").rglob("*.py"))
    found = {str(path): vendors_named(path.read_text(encoding="utf-8")) for path in paths}
    assert found
    assert {path: words for path, words in found.items() if words} == {}


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('"""Chat Completions, as OpenAI sends it."""\nNAME = "openai-chat"\n', []),
        ("from weft.dialects.openai_chat import wire\nOPENAI_CHAT = 1\n", []),
        ("x = 1  # OpenAI's own wire does this\n", []),
        ('"""As DeepSeek sends it."""\n', ["1: deepseek"]),
        ("x = 1  # Mistral needs it\n", ["1: mistral"]),
        ("# Mistral needs it\n", ["1: mistral"]),
        ('if host == "openai":\n    pass\n', ["1: openai"]),
        ("def is_kimi(model: str) -> bool: ...\n", ["1: kimi"]),
        ("x = quirks.groq\n", ["1: groq"]),
        ('x = """\nhttps://api.x.example/vllm\n"""\n', ["2: vllm"]),
    ],
)
def test_a_vendor_in_a_codec_is_seen(source: str, found: list[str]) -> None:
    assert vendors_named(source) == found


# Text is joined once

COLLECTORS = frozenset({"append", "appendleft", "extend", "insert", "join", "write", "writelines"})
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.GeneratorExp)


class DeltaJoins(ast.NodeVisitor):
    """Finds where the `.delta` of a part is joined, or collected so that it can be.

    A delta is the attribute itself, a name that was bound to it (also by a pattern), a slice of
    it, or what one of its string methods returns. Handing it to a function, such as `Buffer.add`,
    comparing it and testing it are free; adding, formatting, joining and collecting it are not.
    """

    def __init__(self) -> None:
        self.lines: list[int] = []
        self._names: set[str] = set()

    def is_delta(self, node: ast.AST | None) -> bool:
        match node:
            case ast.Attribute(attr="delta"):
                return True
            case ast.Name(id=name):
                return name in self._names
            case ast.Call(func=ast.Attribute(value=value)) if self.is_delta(value):
                return True
            case ast.Call(func=ast.Name(id="str" | "list" | "tuple"), args=[value]):
                return self.is_delta(value)
            case ast.Subscript(value=value) | ast.Starred(value=value) | ast.NamedExpr(value=value):
                return self.is_delta(value)
            case ast.IfExp(body=body, orelse=orelse):
                return self.is_delta(body) or self.is_delta(orelse)
            case ast.BoolOp(values=values) | ast.Tuple(elts=values) | ast.List(elts=values):
                return any(map(self.is_delta, values))
            case ast.ListComp(elt=elt) | ast.SetComp(elt=elt) | ast.GeneratorExp(elt=elt):
                return self.is_delta(elt)
        return False

    def _bind(self, target: ast.AST, value: ast.AST | None) -> None:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            for one, other in zip(target.elts, value.elts, strict=False):
                self._bind(one, other)
        elif isinstance(target, ast.Name) and self.is_delta(value):
            self._names.add(target.id)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        outer, self._names = self._names, set()
        self.generic_visit(node)
        self._names = outer

    visit_FunctionDef = visit_AsyncFunctionDef = _function  # noqa: N815

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            self._bind(target, node.value)
        self.generic_visit(node)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self._bind(node.target, node.value)
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self._bind(node.target, node.value)
        self.generic_visit(node)

    def visit_MatchClass(self, node: ast.MatchClass) -> None:
        for key, pattern in zip(node.kwd_attrs, node.kwd_patterns, strict=True):
            if key == "delta" and isinstance(pattern, ast.MatchAs) and pattern.name:
                self._names.add(pattern.name)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        self._note(node, isinstance(node.op, ast.Add | ast.Mod), node.left, node.right)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._note(node, isinstance(node.op, ast.Add), node.target, node.value)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        values = [one.value for one in node.values if isinstance(one, ast.FormattedValue)]
        self._note(node, True, *values)

    def visit_Call(self, node: ast.Call) -> None:
        collects = isinstance(node.func, ast.Attribute) and node.func.attr in COLLECTORS
        self._note(node, collects, *node.args)

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp) -> None:
        self._note(node, True, node.elt)

    visit_ListComp = visit_SetComp = visit_GeneratorExp = _comprehension  # noqa: N815

    def _note(self, node: ast.expr | ast.stmt, joins: bool, *operands: ast.AST) -> None:
        if joins and any(map(self.is_delta, operands)) and node.lineno not in self.lines:
            self.lines.append(node.lineno)
        self.generic_visit(node)


def joins_of_deltas(tree: ast.AST) -> list[int]:
    visitor = DeltaJoins()
    visitor.visit(tree)
    return visitor.lines


def test_deltas_are_joined_only_in_the_assembler() -> None:
    others = [name for name in MODULES if name != "weft.assembler"]
    assert {name: lines for name in others if (lines := joins_of_deltas(parsed(name)))} == {}


@pytest.mark.parametrize(
    "source",
    [
        "text += part.delta",
        "self._held += part.delta",
        "text = text + part.delta",
        "text = part.delta[1:] + text",
        "text = f'{text}{part.delta}'",
        "text = '%s%s' % (text, part.delta)",
        "text = ''.join(part.delta for part in parts)",
        "text = ''.join([part.delta for part in parts])",
        "text = ''.join((text, part.delta))",
        "pieces.append(part.delta)",
        "pieces.append(part.delta.strip())",
        "pieces.extend(part.delta)",
        "file.write(part.delta)",
        "pieces = [part.delta for part in parts]",
        "piece = part.delta\ntext += piece",
        "piece: str = part.delta\ntext += piece",
        "at, piece = 1, part.delta\ntext += piece",
        "if piece := part.delta:\n    text += piece",
        "match part:\n    case TextDelta(delta=said):\n        text += said",
        "text += part.delta if part else ''",
        "text += str(part.delta)",
    ],
)
def test_a_join_of_deltas_is_seen(source: str) -> None:
    assert joins_of_deltas(ast.parse(source)) != []
    inside = "def feed(self, part):\n" + "\n".join(f"    {line}" for line in source.splitlines())
    assert joins_of_deltas(ast.parse(inside)) != []


@pytest.mark.parametrize(
    "source",
    [
        "buffer.add(part.delta)",
        "if part.delta == text:\n    pass",
        "return_(TextDelta(id, part.delta))",
        "out.append(TextDelta(id, part.delta))",
        "out.append(b'%b' % encode(part.delta))",
        "size += len(part.delta)",
        "piece = part.delta\nbuffer.add(piece)",
        "def one(part):\n    piece = part.delta\ndef other(piece):\n    return piece + 'x'",
        "delta = choice.delta\ntext += delta.content",
        "self.delta_count += 1",
        "match part:\n    case TextDelta(id=name):\n        text += name",
    ],
)
def test_handing_a_delta_over_is_no_join(source: str) -> None:
    assert joins_of_deltas(ast.parse(source)) == []


# Dialects by name

NAMES = re.compile(f"""["']({"|".join(get_args(DialectName))})["']""")
KNOWING = {
    # what may name dialects: hosts, what the demo says in each, routes, and what clients read
    "upstream/catalog.py": "presets",
    "upstream/demo/*.py": "the built-in model",
    "gateway/apis.py": "the APIs that the gateway serves",
    "agent/models.py": "the API that agents speak with their models",
    "dialect_names.py": "the names, as a type",
    "cli/demo.py": "an example",
    "cli/init.py": "an example, in the file that it writes",
    "dialects/*/dialect.py": "the row, with its aliases",
    # what dialects know of one another
    "dialects/__init__.py": "an example, in an error",
    "dialects/openai_*/requests/schema.py": "the other dialect of the family",
    "dialects/requests/source_dialects.py": "what renderers must know of the others",
}
OWN_NAME = re.compile('^NAME: Final = ".+"$', re.MULTILINE)
"""The one line of a dialect's folder that has its name."""


def test_what_a_dialect_is_stands_in_its_row_and_nobody_asks_its_name() -> None:
    """Adding a dialect is a folder, a row and a name. A file that no longer names one leaves the
    list.
    """
    naming = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if NAMES.search(OWN_NAME.sub("", path.read_text()))
    }
    unknown = {one for one in naming if not any(map(PurePosixPath(one).match, KNOWING))}
    unused = {one for one in KNOWING if not any(PurePosixPath(path).match(one) for path in naming)}
    assert (unknown, unused) == (set(), set())
