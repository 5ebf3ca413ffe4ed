"""Settings: what weft.toml and the environment come to, and how mistakes in them are named."""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.docs_settings import SECTIONS, rows
from tests.strategies import QUICK
from tests.test_docs import examples
from weft.agent.definition import Limits
from weft.dialects.anthropic_messages.quirks import MessagesQuirks
from weft.dialects.gemini.quirks import GeminiQuirks
from weft.dialects.openai_chat.quirks import ChatQuirks
from weft.dialects.openai_responses.quirks import ResponsesQuirks
from weft.dialects.stages.markup_calls import TAGS, TOKENS, Markup
from weft.errors import ClientError
from weft.gateway.settings import (
    AgentSettings,
    ClientKey,
    KeySettings,
    LimitSettings,
    McpSettings,
    Problem,
    ServerSettings,
    Settings,
    SettingsError,
    StoreSettings,
    WorkerSettings,
    load,
)
from weft.gateway.settings.agents import DEMO_AGENT
from weft.gateway.settings.line_numbers import LineNumbers
from weft.gateway.settings.reader import field_types, union_members
from weft.gateway.settings.schema import SettingsFile
from weft.scrub import Scrubber, Secret
from weft.upstream.base import BreakerPolicy, RetryPolicy, Timeouts, Tls, UpstreamConfig
from weft.upstream.catalog import HOSTS
from weft.upstream.demo import MODELS

NOTHING: Mapping[str, str] = {}
VARIABLES = "WEFT_CONFIG, WEFT_SERVER__KEY, WEFT_STORE__KEY, WEFT_WORKERS__KEY, WEFT_OTEL__KEY"
DEMO = UpstreamConfig(
    "demo",
    "openai-chat",
    "demo:",
    quirks=HOSTS["demo"].quirks,
    models=tuple(MODELS),
    origin="demo",
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "weft.toml"


def read(file: Path, text: str, environ: Mapping[str, str] = NOTHING) -> Settings:
    file.write_text(text, "utf-8")
    return load(file, environ)


def problems(file: Path, text: str, environ: Mapping[str, str] = NOTHING) -> list[str]:
    """What is wrong, the folder left out of the names of files."""
    with pytest.raises(SettingsError) as caught:
        read(file, text, environ)
    return [str(one).replace(f"{file.parent}/", "") for one in caught.value.problems]


def doubts(file: Path, text: str, environ: Mapping[str, str] = NOTHING) -> list[str]:
    found = read(file, text, environ).warnings
    return [str(one).replace(f"{file.parent}/", "") for one in found]


def place(file: Path, lines: str, environ: Mapping[str, str] = NOTHING) -> UpstreamConfig:
    (found,) = read(file, f"[upstreams.here]\n{lines}", environ).upstreams
    return found


def wrong(file: Path, lines: str, environ: Mapping[str, str] = NOTHING) -> list[str]:
    """What is wrong with an upstream of these lines, the part before its keys left out."""
    found = problems(file, f"[upstreams.here]\n{lines}", environ)
    return [one.removeprefix("weft.toml:").replace("upstreams.here.", "") for one in found]


# Without a file


def test_without_a_file_there_is_the_demo_on_loopback(tmp_path: Path) -> None:
    with contextlib.chdir(tmp_path):
        settings = load(None, NOTHING)
    assert settings == Settings(
        path=None,
        server=ServerSettings(),
        store=StoreSettings(),
        upstreams=(DEMO,),
        models={},
        keys=(),
        agents={"demo": DEMO_AGENT},
        secrets=(),
    )
    assert (settings.server.host, settings.server.port) == ("127.0.0.1", 8787)


def test_the_file_here_is_read_if_none_is_named(file: Path) -> None:
    file.write_text("[server]\nport = 1\n")
    with contextlib.chdir(file.parent):
        settings = load(None, NOTHING)
    assert (settings.path, settings.server.port) == (Path("weft.toml"), 1)


def test_the_environment_names_a_file_and_the_command_line_another(file: Path) -> None:
    file.write_text("[server]\nport = 1\n")
    other = file.with_name("other.toml")
    other.write_text("[server]\nport = 2\n")
    environ = {"WEFT_CONFIG": str(other)}
    assert load(None, environ).server.port == 2
    assert load(file, environ).server.port == 1


def test_a_file_without_upstreams_has_the_demo(file: Path) -> None:
    assert read(file, "[server]\nport = 1\n").upstreams == (DEMO,)
    assert read(file, "[upstreams]\n").upstreams == (DEMO,)


# A whole file


WHOLE = """
[server]
host = "0.0.0.0"
port = 9000
workers = 2
keepalive = 5
drain = 0
grace = 0.5
hosts = ["Weft.Example", "weft.example:8443"]
websocket = false
reject_lossy = true
log = "debug"

[server.keys]
alice = "env:ALICE"
bob = { secret = "file:keys/bob" }
carol = "carols-key-is-a-long-one"

[server.limits]
body = 1000
duration = 60

[store]
url = "postgresql://weft:hunter2@db/weft"

[upstreams.deepseek]
api_key = "env:SEEK"
concurrency = 100
models = ["deepseek-chat", "deepseek-reasoner"]

[upstreams.claude]
preset = "anthropic"
base_url = "https://Claude.Example:443/there/"
betas = ["one"]
headers = { "X-Team" = "a b", X-Door = "env:DOOR" }
timeouts = { connect = 1, between_events = 2.5 }
retry = { attempts = 1, base = 0, longest = 0 }
breaker = { failures = 0, open_for = 1 }
tls = { verify = true, ca = "ca.pem", certificate = "own.pem" }

[upstreams.demo]
dialect = "gemini"
base_url = "demo:"

[models]
fast = ["deepseek/deepseek-chat", "claude/opus/5"]
"gpt-5.1" = "demo/m"

[agents.helper]
model = "fast"
"""


def test_a_whole_file_is_read(file: Path) -> None:
    (file.parent / "keys").mkdir()
    (file.parent / "keys" / "bob").write_text("\n bobs-key-is-a-long-one \n")
    for name in ("ca.pem", "own.pem"):
        (file.parent / name).write_text("")
    environ = {"ALICE": "alices-key-is-a-long-one", "SEEK": "s-e-e-k", "DOOR": "d-o-o-r"}
    alice, bob, carol = (Secret(f"{one}s-key-is-a-long-one") for one in ("alice", "bob", "carol"))
    seek, door, pepper = Secret("s-e-e-k"), Secret("d-o-o-r"), Secret("hunter2")
    assert read(file, WHOLE, environ | {"ANTHROPIC_API_KEY": "a-n-t"}) == Settings(
        path=file,
        server=ServerSettings(
            host="0.0.0.0",
            port=9000,
            workers=2,
            keepalive=5.0,
            drain=0.0,
            grace=0.5,
            hosts=("weft.example", "weft.example:8443"),
            websocket=False,
            reject_lossy=True,
            log="debug",
            keys={
                "alice": Secret("env:ALICE"),
                "bob": KeySettings(secret=Secret("file:keys/bob")),
                "carol": carol,
            },
            limits=LimitSettings(body=1000, duration=60.0),
        ),
        store=StoreSettings("postgresql://weft:hunter2@db/weft"),
        upstreams=(
            UpstreamConfig(
                "deepseek",
                "openai-chat",
                "https://api.deepseek.com/v1",
                seek,
                HOSTS["deepseek"].quirks,
                concurrency=100,
                models=("deepseek-chat", "deepseek-reasoner"),
                discover=False,
                origin="api.deepseek.com",
            ),
            UpstreamConfig(
                "claude",
                "anthropic-messages",
                "https://claude.example/there",
                Secret("a-n-t"),
                headers={"x-team": "a b", "x-door": "d-o-o-r"},
                timeouts=Timeouts(connect=1.0, between_events=2.5),
                tls=Tls(True, str(file.parent / "ca.pem"), str(file.parent / "own.pem")),
                retry=RetryPolicy(1, 0.0, 0.0),
                breaker=BreakerPolicy(0, 1.0),
                betas=("one",),
                origin="claude.example",
            ),
            replace(DEMO, dialect="gemini", quirks=None),
        ),
        models={"fast": ("deepseek/deepseek-chat", "claude/opus/5"), "gpt-5.1": ("demo/m",)},
        keys=(ClientKey("alice", alice), ClientKey("bob", bob), ClientKey("carol", carol)),
        agents={"helper": AgentSettings("fast")},
        secrets=(seek, Secret("a-n-t"), door, alice, bob, carol, pepper),
    )


def test_no_secret_is_in_what_is_printed_of_settings(file: Path) -> None:
    text = """
    server.keys = { a = "alices-key-is-a-long-one", b = { secret = "bobs-key-is-a-long-one" } }
    store.url = "postgresql://weft:a-long-password@db/weft"
    [upstreams.openai]
    api_key = "the-key-of-the-upstream"
    [upstreams.openai.headers]
    X-Door = "env:DOOR"
    X-Auth = "Token a-literal-key"
    X-Team = "MarkedTeam/0123456789"
    X-Stage = "production"
    X-Token = "short"
    User-Agent = "weft-tests/0.1.2.3.4.5"
    [mcp.files]
    command = ["files"]
    env = { LANG = "en_GB.UTF-8", API_TOKEN = "a-literal-token" }
    [otel]
    endpoint = "http://127.0.0.1:9"
    headers = { b = "of-a-collector-1" }
    """
    settings = read(file, text, {"DOOR": "the-key-of-the-door"})
    assert settings.upstreams[0].headers["x-door"] == "the-key-of-the-door"
    assert {one.reveal() for one in settings.secrets} == {
        *("alices-key-is-a-long-one", "bobs-key-is-a-long-one", "a-long-password"),
        *("the-key-of-the-upstream", "the-key-of-the-door", "Token a-literal-key", "a-literal-key"),
        *("a-literal-token", "of-a-collector-1", "MarkedTeam/0123456789"),
    }
    for secret in settings.secrets:
        assert secret.reveal() not in repr(settings)
        assert Scrubber(settings.secrets)(f"<{secret.reveal()}>") == "<***>"


@pytest.mark.parametrize(
    ("host", "kept"),
    [
        ("localhost", "localhost"),
        ("weft.example", "weft.example"),
        ("10.0.0.1", "10.0.0.1"),
        ("::", "::"),
        ("[::1]", "::1"),
        ("fe80::1%eth0", "fe80::1%eth0"),
    ],
)
def test_the_server_listens_on_a_name_or_an_address(file: Path, host: str, kept: str) -> None:
    assert read(file, f'server.host = "{host}"').server == ServerSettings(host=kept)


# Upstreams


def test_the_name_of_an_upstream_is_its_preset(file: Path) -> None:
    (found,) = read(file, "[upstreams.ollama]\n").upstreams
    host = HOSTS["ollama"]
    assert found == UpstreamConfig(
        "ollama",
        "openai-chat",
        "http://127.0.0.1:11434/v1",
        quirks=host.quirks,
        origin="127.0.0.1:11434",
    )


def test_an_upstream_with_an_address_takes_nothing_from_its_name(file: Path) -> None:
    text = '[upstreams.deepseek]\ndialect = "openai-chat"\nbase_url = "http://[::1]:99"\n'
    (found,) = read(file, text, {"DEEPSEEK_API_KEY": "x-y-z"}).upstreams
    assert found == UpstreamConfig("deepseek", "openai-chat", "http://[::1]:99", origin="[::1]:99")


@pytest.mark.parametrize("name", HOSTS)
def test_every_preset_makes_a_place(file: Path, name: str) -> None:
    host = HOSTS[name]
    base_url = host.base_url or "https://mine.example/openai/v1"
    lines = f'preset = "{name}"\n' + ("" if host.base_url else f'base_url = "{base_url}"\n')
    environ = {host.variable: "s-e-c-r-e-t"} if host.variable else {}
    settings = read(file, f"[upstreams.here]\n{lines}", environ)
    (found,) = settings.upstreams
    assert (found.dialect, found.base_url, found.quirks) == (host.dialect, base_url, host.quirks)
    assert found.key == (Secret("s-e-c-r-e-t") if host.variable else None)
    assert settings.warnings == ()


def test_the_usual_key_may_be_missing(file: Path) -> None:
    text = '[upstreams.vllm]\n[upstreams.groq]\nmodels = ["m"]\n'
    for environ in (NOTHING, {"GROQ_API_KEY": " "}):
        settings = read(file, text, environ)
        assert [one.key for one in settings.upstreams] == [None, None]
        assert [(one.line, one.key, one.message) for one in settings.warnings] == [
            (
                2,
                "upstreams.groq.api_key",
                "this host needs an API key: GROQ_API_KEY is not set",
            )
        ]


def test_a_dialect_may_be_called_by_its_second_name(file: Path) -> None:
    found = place(file, 'dialect = "open-responses"\nbase_url = "http://localhost/v1"')
    assert found.dialect == "openai-responses"


def test_a_preset_can_be_asked_in_the_other_dialect_of_its_family(file: Path) -> None:
    lines = 'preset = "deepseek"\ndialect = "openai-responses"\napi_key = "x-y-z"'
    assert place(file, lines) == UpstreamConfig(
        "here",
        "openai-responses",
        "https://api.deepseek.com/v1",
        Secret("x-y-z"),
        origin="api.deepseek.com",
    )


@pytest.mark.parametrize(
    "dialect", ["openai-chat", "openai-responses", "anthropic-messages", "gemini"]
)
def test_the_demo_speaks_every_dialect(file: Path, dialect: str) -> None:
    found = place(file, f'preset = "demo"\ndialect = "{dialect}"')
    quirks = DEMO.quirks if dialect == DEMO.dialect else None
    assert found == replace(DEMO, name="here", dialect=dialect, quirks=quirks)


CHAT = 'dialect = "openai-chat"\nbase_url = "http://localhost/v1"\n'


@pytest.mark.parametrize(
    ("lines", "quirks"),
    [
        (CHAT, None),
        (CHAT + 'quirks = "mistral"', HOSTS["mistral"].quirks),
        (CHAT + 'quirks = "openai-chat"', ChatQuirks(custom_tools=True)),
        (CHAT + "quirks = { implicit_think = true }", ChatQuirks(implicit_think=True)),
        (CHAT + "quirks = {}", ChatQuirks()),
        (CHAT + 'quirks.text_markup_calls = "tags"', ChatQuirks(text_markup_calls=TAGS)),
        (CHAT + 'quirks.text_markup_calls = "tokens"', ChatQuirks(text_markup_calls=TOKENS)),
        (
            CHAT + 'quirks.text_markup_calls = { begin = "<", end = ">", section = ["a"] }',
            ChatQuirks(text_markup_calls=Markup("<", ">", None, ("a",))),
        ),
        (
            CHAT + 'quirks = { reasoning_back = ["reasoning", "reasoning_details"] }',
            ChatQuirks(reasoning_back=("reasoning", "reasoning_details")),
        ),
        (
            'preset = "vllm"\nquirks = { implicit_think = true }',
            ChatQuirks(developer_role=False, reasoning_back=("reasoning",), implicit_think=True),
        ),
        (
            'preset = "gemini"\nquirks = { thinking = "budget", most_thinking = 9 }',
            GeminiQuirks(thinking="budget", most_thinking=9),
        ),
        (
            'preset = "openai"\nquirks = { stateless_reasoning = false }',
            ResponsesQuirks(stateless_reasoning=False),
        ),
        (
            'preset = "anthropic"\nquirks = { efforts = ["low", "high"], most_tokens = 8192 }',
            MessagesQuirks(efforts=("low", "high"), most_tokens=8192),
        ),
    ],
)
def test_quirks_are_a_preset_or_a_table_that_changes_it(
    file: Path, lines: str, quirks: object
) -> None:
    assert place(file, lines).quirks == quirks


# What is wrong with the file as a whole


def test_a_file_that_is_not_there_is_named(file: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        load(file, NOTHING)
    assert caught.value.problems == (Problem(str(file), None, "", "No such file or directory"),)
    assert str(caught.value) == f"{file}: No such file or directory"
    assert isinstance(caught.value, ClientError)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[server]\nport = = 1\n", "weft.toml:2: invalid value"),
        ("[server\n", "weft.toml:1: expected ']' at the end of a table declaration"),
        ("a = 1\n\n\na = 2\n", "weft.toml:4: cannot overwrite a value"),
        ('[server]\nhost = "x', "weft.toml:2: unterminated string"),
        ("\n\nport\n", "weft.toml:3: expected '=' after a key in a key/value pair"),
        ("a = " + "[" * 5000, "weft.toml: nested too deeply"),
    ],
)
def test_what_is_no_toml_is_named_with_its_line(file: Path, text: str, said: str) -> None:
    assert problems(file, text) == [said]


def test_what_is_not_utf_8_is_named_with_its_line(file: Path) -> None:
    file.write_bytes(b"[server]\n\nhost = '\xff'\n")
    with pytest.raises(SettingsError) as caught:
        load(file, NOTHING)
    assert caught.value.problems == (Problem(str(file), 3, "", "not UTF-8"),)


def test_a_byte_order_mark_and_other_line_ends_are_read(file: Path) -> None:
    file.write_bytes(b"\xef\xbb\xbf[server]\r\nport = 1\r\nprot = 2\r\n")
    with pytest.raises(SettingsError) as caught:
        load(file, NOTHING)
    (found,) = caught.value.problems
    assert (found.line, found.key) == (3, "server.prot")


def test_everything_that_is_wrong_is_found_at_once_in_the_order_of_the_file(file: Path) -> None:
    text = """\
[models]
fast = "nobody/m"

[upstreams.deepseek]
dialekt = "openai-chat"
timeouts.connect = 0

[server]
port = 70000
log = "loud"
keys.alice = "env:NOT_THERE"
limits = { body = 0, dept = 1 }
"""
    assert problems(file, text, {"WEFT_SERVER__WORKERS": "many", "WEFT_HOME": "x"}) == [
        "weft.toml:2: models.fast: 'nobody/m': no such upstream; there are deepseek",
        "weft.toml:5: upstreams.deepseek.dialekt: no such setting; did you mean dialect?",
        (
            "weft.toml:6: upstreams.deepseek.timeouts.connect: "
            "must be more than 0 and at most 31,536,000, got 0"
        ),
        "weft.toml:9: server.port: must be from 0 to 65,535, got 70000",
        "weft.toml:10: server.log: expected one of debug, info, warning, error, got text",
        "weft.toml:11: server.keys.alice: the variable NOT_THERE is not set",
        "weft.toml:12: server.limits.dept: no such setting; did you mean depth?",
        "weft.toml:12: server.limits.body: must be at least 1, got 0",
        "environment: WEFT_SERVER__WORKERS: expected a whole number, got text",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "port = 1",
            (
                "1: port: no such setting; there are "
                "server, store, upstreams, models, agents, mcp, prices, workers, otel"
            ),
        ),
        ("[sever]", "1: sever: no such setting; did you mean server?"),
        ("server = 1", "1: server: expected a table, got a whole number"),
        ("[[server]]", "1: server: expected a table, got a list"),
        ("upstreams = 1", "1: upstreams: expected a table, got a whole number"),
        ("upstreams.a = 1", "1: upstreams.a: expected a table, got a whole number"),
        ("server.port = '1'", "1: server.port: expected a whole number, got text"),
        ("server.port = 1.5", "1: server.port: expected a whole number, got a number"),
        ("server.port = true", "1: server.port: expected a whole number, got true or false"),
        ("server.port = -1", "1: server.port: must be from 0 to 65,535, got -1"),
        ("server.port = {}", "1: server.port: expected a whole number, got a table"),
        ("server.port = 1979-05-27", "1: server.port: expected a whole number, got a time"),
        ("server.workers = 0", "1: server.workers: must be from 1 to 1,024, got 0"),
        ("server.drain = -1", "1: server.drain: must be from 0 to 31,536,000, got -1"),
        ("server.drain = nan", "1: server.drain: must be from 0 to 31,536,000, got nan"),
        ("server.drain = inf", "1: server.drain: must be from 0 to 31,536,000, got inf"),
        (
            "server.websocket = 1",
            "1: server.websocket: expected true or false, got a whole number",
        ),
        ("server.hosts = 'a'", "1: server.hosts: expected a list of texts, got text"),
        ("server.hosts = ['a', 1]", "1: server.hosts: expected a list of texts"),
        (
            "server.hosts = ['https://a']",
            "1: server.hosts: expected host names, with or without a port, and no scheme",
        ),
        (
            "server.host = 'http://127.0.0.1'",
            "1: server.host: expected an IP address or host name, without scheme and port",
        ),
        (
            "server.host = ''",
            "1: server.host: expected an IP address or host name, without scheme and port",
        ),
        ("server.keys = false", "1: server.keys: expected a table, got true or false"),
        ("server.keys = 'a'", "1: server.keys: expected a table, got text"),
        ("server.keys.a = 1", "1: server.keys.a: expected text or a table, got a whole number"),
        ("server.keys.a = {}", "1: server.keys.a: secret is missing"),
        (
            "server.keys.a = { secret = 1 }",
            "1: server.keys.a.secret: expected text, got a whole number",
        ),
        (
            "server.keys.a = { key = '0123456789abcdef', secret = '0123456789abcdef' }",
            (
                "1: server.keys.a.key: no such setting; there are models, requests_per_minute, "
                "tokens_per_minute, streams, budget, usage, secret"
            ),
        ),
        (
            "server.keys.'' = '0123456789abcdef'",
            '1: server.keys."": the name of a key must be printable',
        ),
        ("store.url = 'postgresql://[::1'", "1: store.url: not a valid URL"),
        ("store.url = 'mysql://x'", "1: store.url: expected sqlite:///PATH or postgresql://…"),
        (
            "models.a = { targets = ['demo/m'], weights = [1] }",
            '1: models.a: weights need balance = "weighted"',
        ),
        (
            "models.a = { targets = ['demo/m'], balance = 'weighted', weights = [1, 2] }",
            "1: models.a: has 2 weights for 1 targets",
        ),
        (
            "models.a = { targets = ['demo/m'], balance = 'weighted', weights = [0] }",
            "1: models.a.weights: each must be more than 0",
        ),
        (
            "models.'demo/m' = { targets = ['demo/n'] }",
            '1: models."demo/m": is already a model of the upstream demo; choose another name',
        ),
        (
            "models.a = { lossy = 'refuse' }",
            "1: models.a: needs at least one target, <upstream>/<model>",
        ),
        ("models.a = []", "1: models.a: needs at least one target, <upstream>/<model>"),
        (
            "models.a = 1",
            "1: models.a: expected text or a list of texts or a table, got a whole number",
        ),
        (
            "models.gpt-5.1 = 'demo/m'",
            (
                "1: models.gpt-5.1: no such setting; there are targets, balance, weights, lossy; "
                "a name with a dot in it needs quotes"
            ),
        ),
        ("models.'a b' = 'demo/m'", '1: models."a b": an alias must be a word without blanks'),
        (
            "models.'demo/m' = 'demo/n'",
            ('1: models."demo/m": is already a model of the upstream demo; choose another name'),
        ),
        ("models.a = 'demo'", "1: models.a: 'demo' is not a target; expected <upstream>/<model>"),
        ("models.a = 'demo/'", "1: models.a: 'demo/' is not a target; expected <upstream>/<model>"),
        ("models.a = 'dmo/m'", "1: models.a: 'dmo/m': no such upstream; did you mean demo?"),
        ("models.a = ['demo/m', 'demo/m']", "1: models.a: 'demo/m' is listed twice"),
        (
            "prices.'dmo/m' = { input = 1, output = 2 }",
            '1: prices."dmo/m": no such upstream; did you mean demo?',
        ),
        (
            "prices.demo = { input = 1, output = 2 }",
            "1: prices.demo: expected the price of <upstream>/<model>",
        ),
        (
            "store.enabled = false\n[server.keys.a]\nsecret = '0123456789abcdef'\nbudget.day = 1",
            "4: server.keys.a.budget: needs a store, and store.enabled is false",
        ),
        (
            (
                "store.enabled = false\n[server]\nworkers = 2\n"
                "keys.a.secret = '0123456789abcdef'\nkeys.a.streams = 2"
            ),
            "5: server.keys.a.streams: needs a store if there are several workers",
        ),
        (
            "server.keys.a = { secret = '0123456789abcdef', budget = { day = -1 } }",
            "1: server.keys.a.budget.day: must be from 0 to 1,000,000,000, got -1",
        ),
        ("prices.'demo/m' = { input = 1 }", '1: prices."demo/m": output is missing'),
        (
            "prices.'demo/m' = { input = 1, output = -2 }",
            '1: prices."demo/m".output: must be from 0 to 1,000,000,000, got -2',
        ),
        (
            "prices.'demo/m' = { input = inf, output = 2 }",
            '1: prices."demo/m".input: must be from 0 to 1,000,000,000, got inf',
        ),
        ("models.a = 'a'", "1: models.a: 'a' is itself an alias; expected <upstream>/<model>"),
    ],
)
def test_a_mistake_is_named_with_its_line_and_key(file: Path, text: str, said: str) -> None:
    assert problems(file, text) == [f"weft.toml:{said}"]


def test_aliases_of_aliases_are_refused(file: Path) -> None:
    assert problems(file, "[models]\na = 'b'\nb = ['demo/m', 'a']\n") == [
        "weft.toml:2: models.a: 'b' is itself an alias; expected <upstream>/<model>",
        "weft.toml:3: models.b: 'a' is itself an alias; expected <upstream>/<model>",
    ]


def test_an_alias_may_have_a_slash_and_a_model_several(file: Path) -> None:
    text = '[models]\n"openai/gpt-5" = "demo/openai/gpt-5"\n'
    assert read(file, text).models == {"openai/gpt-5": ("demo/openai/gpt-5",)}


def test_an_alias_of_an_upstream_with_a_mistake_is_no_second_mistake(file: Path) -> None:
    text = "[models]\na = 'here/m'\n[upstreams]\nhere = 1\n"
    assert problems(file, text) == [
        "weft.toml:4: upstreams.here: expected a table, got a whole number"
    ]


# What is wrong with an upstream


@pytest.mark.parametrize("name", ["OpenAI", "a/b", "", "-a", "a b", "é"])
def test_an_upstream_has_a_simple_name(file: Path, name: str) -> None:
    text = f'[upstreams."{name}"]\npreset = "demo"\n'
    (found,) = problems(file, text)
    assert found.endswith("a name may contain only lower-case letters, digits, '.', '_' and '-'")


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (
            "",
            (
                "1: upstreams.here: base_url is missing: no preset has this name; "
                "`weft config presets` lists them"
            ),
        ),
        ("preset = 'azure'", "1: upstreams.here: base_url is missing: the preset azure has none"),
        ("preset = 'deepsek'", "2: preset: no such preset; did you mean deepseek?"),
        (
            "base_url = 'http://a'",
            (
                "1: upstreams.here: dialect is missing; expected one of openai-chat, "
                "openai-responses, open-responses, anthropic-messages, gemini"
            ),
        ),
        (
            "preset = 'demo'\ndialect = 'openai_chat'",
            "3: dialect: no such dialect; did you mean openai-chat?",
        ),
        (
            "preset = 'openai'\ndialect = 'ai-sdk'",
            (
                "3: dialect: no such dialect; there are "
                "openai-chat, openai-responses, open-responses, anthropic-messages, gemini"
            ),
        ),
        (
            "preset = 'openai'\ndialect = 'gemini'",
            ("3: dialect: the preset openai is for openai-responses; gemini needs a base_url"),
        ),
        (
            "preset = 'demo'\nquirks = 'deepsek'",
            "3: quirks: no such preset; did you mean deepseek?",
        ),
        (
            "preset = 'demo'\nquirks = 'gemini'",
            "3: quirks: the quirks of gemini are for gemini, not openai-chat",
        ),
        ("preset = 'demo'\nquirks = 1", "3: quirks: expected text or a table, got a whole number"),
        (
            "preset = 'demo'\nquirks.implicit = true",
            "3: quirks.implicit: no such setting; did you mean implicit_think?",
        ),
        (
            "preset = 'demo'\nquirks.implicit_think = 'yes'",
            "3: quirks.implicit_think: expected true or false, got text",
        ),
        (
            "preset = 'demo'\nquirks.token_limit = 'most'",
            "3: quirks.token_limit: expected one of max_completion_tokens, max_tokens, got text",
        ),
        (
            "preset = 'demo'\nquirks.reasoning_back = ['all']",
            (
                "3: quirks.reasoning_back: expected "
                "a list of one of reasoning_content, reasoning, reasoning_details"
            ),
        ),
        (
            "preset = 'demo'\nquirks.text_markup_calls = 'xml'",
            "3: quirks.text_markup_calls: expected a table, got text",
        ),
        (
            "preset = 'demo'\nquirks.text_markup_calls = { begin = '<' }",
            "3: quirks.text_markup_calls: end is missing",
        ),
        (
            "preset = 'demo'\nquirks.text_markup_calls = { begin = '', end = '>' }",
            "3: quirks.text_markup_calls.begin: must not be empty",
        ),
        (
            "preset = 'anthropic'\nquirks.max_tokens = 0",
            "3: quirks.max_tokens: must be at least 1, got 0",
        ),
        (
            "preset = 'anthropic'\nquirks.most_tokens = 0",
            "3: quirks.most_tokens: must be at least 1, got 0",
        ),
        ("preset = 'demo'\nconcurrency = 0", "3: concurrency: must be at least 1, got 0"),
        (
            "preset = 'demo'\nmodels = ['a', 'a']",
            "3: models: 'a' is not a model name, or is listed twice",
        ),
        (
            "preset = 'demo'\nmodels = ['']",
            "3: models: '' is not a model name, or is listed twice",
        ),
        ("preset = 'demo'\nretry.attempts = 0", "3: retry.attempts: must be at least 1, got 0"),
        (
            "preset = 'demo'\nbreaker.failures = -1",
            "3: breaker.failures: must be at least 0, got -1",
        ),
        (
            "preset = 'demo'\ntls.veryfy = false",
            "3: tls.veryfy: no such setting; did you mean verify?",
        ),
        ("preset = 'demo'\nbetas = 'one'", "3: betas: expected a list of texts, got text"),
    ],
)
def test_a_mistake_in_an_upstream_is_named(file: Path, lines: str, said: str) -> None:
    assert wrong(file, lines) == [said]


def test_a_certificate_must_be_there(file: Path) -> None:
    assert problems(file, '[upstreams.demo]\ntls.ca = "not/here.pem"\n') == [
        "weft.toml:2: upstreams.demo.tls.ca: no such file: not/here.pem"
    ]


@pytest.mark.parametrize(
    ("base_url", "said"),
    [
        ("", "a URL must not contain blanks or non-ASCII characters"),
        ("http://a b", "a URL must not contain blanks or non-ASCII characters"),
        ("http://é", "a URL must not contain blanks or non-ASCII characters"),
        ("ftp://a", "expected http://… or https://… with a host, or demo:"),
        ("a.example/v1", "expected http://… or https://… with a host, or demo:"),
        ("https:///v1", "expected http://… or https://… with a host, or demo:"),
        ("demo:x", "expected http://… or https://… with a host, or demo:"),
        (
            "https://me:secret@a",
            "a user name or password in the URL is not supported; use api_key or headers",
        ),
        ("https://a/?b=c", "a base URL must not have a query or fragment"),
        ("https://a/#b", "a base URL must not have a query or fragment"),
        ("https://a/?", "a base URL must not have a query or fragment"),
        ('https://a/b"c', "the path has characters that must be escaped"),
        ("https://a/b/../c", "the path must not contain . or .. segments"),
        ("https://a:0", "port 0 is not valid"),
        ("https://a:99999", "Port out of range 0-65535"),
        ("https://a:b", "Port could not be cast to integer value as 'b'"),
        ("https://[::1", "Invalid IPv6 URL"),
    ],
)
def test_a_base_url_is_an_address_and_nothing_else(file: Path, base_url: str, said: str) -> None:
    lines = f"dialect = 'openai-chat'\nbase_url = '{base_url}'"
    assert wrong(file, lines) == [f"3: base_url: {said}"]


@pytest.mark.parametrize(
    ("base_url", "kept", "origin"),
    [
        ("http://localhost", "http://localhost", "localhost"),
        ("HTTP://LocalHost:80/", "http://localhost", "localhost"),
        ("https://a:443/V1//", "https://a/V1", "a"),
        ("https://a:80/v1", "https://a:80/v1", "a:80"),
        ("https://[::1]:8/x%20y", "https://[::1]:8/x%20y", "[::1]:8"),
        ("https://a.example/v1/acc:1/@x", "https://a.example/v1/acc:1/@x", "a.example"),
    ],
)
def test_a_base_url_is_kept_without_what_says_nothing(
    file: Path, base_url: str, kept: str, origin: str
) -> None:
    found = place(file, f"dialect = 'openai-chat'\nbase_url = '{base_url}'")
    assert (found.base_url, found.origin) == (kept, origin)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("Host", "a", "this header is reserved"),
        ("content-length", "1", "this header is reserved"),
        ("Content-Type", "a/b", "this header is reserved"),
        ("AUTHORIZATION", "a", "this header is reserved"),
        ("x-api-key", "a", "this header is reserved"),
        ("Transfer-Encoding", "chunked", "this header is reserved"),
        ("a b", "a", "invalid header name"),
        ("", "a", "invalid header name"),
        ("a:", "a", "invalid header name"),
        ("a", "", "invalid header value; expected visible ASCII characters, blanks only inside"),
        ("a", " b", "invalid header value; expected visible ASCII characters, blanks only inside"),
        (
            "a",
            "b\\r\\nc: d",
            "invalid header value; expected visible ASCII characters, blanks only inside",
        ),
        ("a", "é", "invalid header value; expected visible ASCII characters, blanks only inside"),
        ("a", "env:NOT_THERE", "the variable NOT_THERE is not set"),
    ],
)
def test_a_header_is_legal_and_not_one_of_ours(
    file: Path, name: str, value: str, said: str
) -> None:
    found = wrong(file, f'preset = "demo"\nheaders = {{ "{name}" = "{value}" }}')
    shown = name if name.isidentifier() or "-" in name else f'"{name}"'
    assert found == [f"3: headers.{shown}: {said}"]


def test_a_header_is_given_once(file: Path) -> None:
    assert wrong(file, 'preset = "demo"\nheaders = { A = "1", a = "2" }') == [
        "3: headers.a: duplicate header (names are case-insensitive)"
    ]


# Secrets


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ("", "the secret is empty"),
        ("a b", "the secret contains characters that a header cannot have"),
        ("é", "the secret contains characters that a header cannot have"),
        ("env:", "env: needs the name of a variable"),
        ("env:NOT_THERE", "the variable NOT_THERE is not set"),
        ("env:BLANK", "the variable BLANK is empty"),
        ("env:LINES", "the variable LINES contains characters that a header cannot have"),
        ("file:not-there", "the file not-there cannot be read: No such file or directory"),
        ("file:", "the file . cannot be read: Is a directory"),
        ("file:blank", "the file blank is empty"),
        ("file:bytes", "the file bytes is not text"),
    ],
)
def test_a_secret_that_is_named_must_be_there(file: Path, told: str, said: str) -> None:
    (file.parent / "blank").write_text("\n")
    (file.parent / "bytes").write_bytes(b"\xff")
    environ = {"BLANK": " ", "LINES": "a\nb"}
    file.write_text(f"[upstreams.openai]\napi_key = '{told}'\n[server.keys]\na = '{told}'\n")
    with contextlib.chdir(file.parent), pytest.raises(SettingsError) as caught:
        load(Path("weft.toml"), environ)
    assert [str(one) for one in caught.value.problems] == [
        f"weft.toml:2: upstreams.openai.api_key: {said}",
        f"weft.toml:4: server.keys.a: {said}",
    ]


def test_a_secret_that_is_used_twice_is_one(file: Path) -> None:
    text = "[upstreams.openai]\n[upstreams.openai-chat]\n"
    settings = read(file, text, {"OPENAI_API_KEY": "x-y-z"})
    assert [one.key for one in settings.upstreams] == [Secret("x-y-z")] * 2
    assert settings.secrets == (Secret("x-y-z"),)


def test_two_clients_have_two_secrets(file: Path) -> None:
    text = '[server.keys]\na = "the-secret-of-them-both"\nb = "env:B"\n'
    assert problems(file, text, {"B": "the-secret-of-them-both"}) == [
        "weft.toml:3: server.keys.b: has the same secret as a"
    ]


def test_a_secret_in_the_wrong_place_is_not_told(file: Path) -> None:
    text = """
    [server]
    port = "sk-secret-1"
    hosts = ["https://sk-secret-2"]
    log = "sk-secret-3"
    [upstreams.here]
    dialect = "openai-chat"
    base_url = "https://sk-secret-4:sk-secret-5@a"
    quirks.token_limit = "sk-secret-6"
    concurrency = "sk-secret-7"
    headers = { Authorization = "Bearer sk-secret-8", x = "sk-secret-9\\n" }
    """
    found = problems(file, text)
    assert len(found) == 8
    assert [one for one in found if "secret" in one] == []


# The environment


@pytest.mark.parametrize(
    ("name", "value", "server"),
    [
        ("WEFT_SERVER__PORT", "9000", ServerSettings(port=9000)),
        ("WEFT_SERVER__HOST", "0.0.0.0", ServerSettings(host="0.0.0.0")),
        ("WEFT_SERVER__DRAIN", "1.5", ServerSettings(drain=1.5)),
        ("WEFT_SERVER__WEBSOCKET", "false", ServerSettings(websocket=False)),
        ("WEFT_SERVER__LOG", "error", ServerSettings(log="error")),
        ("WEFT_SERVER__HOSTS", "a, b.example:1", ServerSettings(hosts=("a", "b.example:1"))),
        ("WEFT_SERVER__HOSTS", "", ServerSettings()),
        ("WEFT_SERVER__LIMITS__BODY", "10", ServerSettings(limits=LimitSettings(body=10))),
    ],
)
def test_a_variable_sets_a_key_of_the_server(
    file: Path, name: str, value: str, server: ServerSettings
) -> None:
    assert read(file, "", {name: value, "PATH": "/bin"}).server == server


def test_the_environment_wins_over_the_file_and_leaves_the_rest(file: Path) -> None:
    text = "[server]\nport = 1\ndrain = 1\nlimits = { body = 1, head = 1 }\n"
    environ = {"WEFT_SERVER__PORT": "2", "WEFT_SERVER__LIMITS__BODY": "2"}
    settings = read(file, text, environ | {"WEFT_STORE__URL": "sqlite:///x.db"})
    assert settings.server == ServerSettings(
        port=2, drain=1.0, limits=LimitSettings(body=2, head=1)
    )
    assert settings.store == StoreSettings("sqlite:///x.db")


def test_a_client_key_can_come_from_the_environment_alone(file: Path) -> None:
    environ = {"WEFT_SERVER__KEYS__ALICE": "alices-key-is-a-long-one"}
    assert read(file, "", environ).keys == (ClientKey("alice", Secret("alices-key-is-a-long-one")),)


def test_a_variable_that_the_file_names_is_known(file: Path) -> None:
    found = place(file, 'preset = "demo"\napi_key = "env:WEFT_DEMO_KEY"', {"WEFT_DEMO_KEY": "x-y"})
    assert found.key == Secret("x-y")


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("WEFT_SERVER__PROT", "1", "no such setting; did you mean port?"),
        ("WEFT_SERVER__PORT", "", "expected a whole number, got text"),
        ("WEFT_SERVER__PORT", "70000", "must be from 0 to 65,535, got 70000"),
        ("WEFT_SERVER__WEBSOCKET", "yes", "expected true or false, got text"),
        ("WEFT_SERVER__LIMITS", "9", "expected a table, got text"),
        ("WEFT_SERVER__HOST", "", "expected an IP address or host name, without scheme and port"),
        ("WEFT_SERVER__KEYS__A", "", "the secret is empty"),
    ],
)
def test_a_mistake_in_a_variable_is_named_by_the_variable(
    file: Path, name: str, value: str, said: str
) -> None:
    assert problems(file, "[server]\nport = 1\n", {name: value}) == [f"environment: {name}: {said}"]


@pytest.mark.parametrize(
    "name", ["WEFT_PORT", "WEFT_SERVER_PORT", "WEFT_MODELS__A", "WEFT_SERVER__", "WEFT_"]
)
def test_an_unknown_variable_is_a_warning(file: Path, name: str) -> None:
    """Clients and scripts have variables of their own, and that of the key is known."""
    (warning,) = read(file, "[server]\nport = 1\n", {name: "1", "WEFT_KEY": "2"}).warnings
    assert str(warning) == f"environment: {name}: unknown variable; expected {VARIABLES}"


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("sqlite:///:memory:", "a store in memory would be lost with its process"),
        ("sqlite:///", "a store in memory would be lost with its process"),
        ("sqlite:///a.db?mode=ro", "an SQLite URL has no options"),
    ],
)
def test_a_store_that_cannot_be_used_is_refused_in_words(file: Path, url: str, said: str) -> None:
    (problem,) = problems(file, f'[store]\nurl = "{url}"\n')
    assert problem.startswith(f"weft.toml:2: store.url: {said}")


# What is hardly meant


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (
            "dialect = 'openai-chat'\nbase_url = 'https://a/v1/chat/completions'",
            "3: base_url: ends with /chat/completions, which is added automatically",
        ),
        (
            "dialect = 'anthropic-messages'\nbase_url = 'https://a/v1/'",
            "3: base_url: ends with /v1, which is added automatically",
        ),
        (
            "dialect = 'gemini'\nbase_url = 'https://a/v1beta'",
            "3: base_url: ends with /v1beta, which is added automatically",
        ),
        (
            "dialect = 'openai-chat'\nbase_url = 'http://10.0.0.1/v1'\napi_key = 'x'",
            "3: base_url: the API key is sent unencrypted: http, not https",
        ),
        (
            "preset = 'demo'\ntls = { verify = false }",
            "3: tls: verify is off: the identity of the host is not checked",
        ),
        (
            "preset = 'mistral'",
            "1: api_key: this host needs an API key: MISTRAL_API_KEY is not set",
        ),
    ],
)
def test_what_is_hardly_meant_is_a_doubt_and_no_error(file: Path, lines: str, said: str) -> None:
    assert doubts(file, f"[upstreams.here]\n{lines}") == [
        "weft.toml:" + said.replace(": ", ": upstreams.here.", 1)
    ]


@pytest.mark.parametrize(
    "lines",
    [
        "dialect = 'openai-chat'\nbase_url = 'http://127.0.0.1/v1'\napi_key = 'x'",
        "dialect = 'openai-chat'\nbase_url = 'http://localhost/v1'\napi_key = 'x'",
        "dialect = 'openai-chat'\nbase_url = 'http://[::1]/v1'\napi_key = 'x'",
        "dialect = 'openai-chat'\nbase_url = 'http://10.0.0.1/v1'",
        "preset = 'azure'\nbase_url = 'https://a/openai/v1'\nheaders = { api-key = 'x' }",
        "preset = 'ollama'",
    ],
)
def test_there_is_no_doubt_without_a_reason(file: Path, lines: str) -> None:
    assert doubts(file, f"[upstreams.here]\n{lines}") == []


def test_a_short_client_key_is_doubted(file: Path) -> None:
    assert doubts(file, '[server.keys]\na = "0123456789abcde"\nb = "0123456789abcdef"\n') == [
        "weft.toml:2: server.keys.a: the key is shorter than 16 characters"
    ]


# Lines


LINED = '''\
# a comment with [brackets] and a = sign
top.inner = 1
"quoted.key" = 2
'single' = """
[not.a.table]
x = 1 \\"""
""""
list = [
  1, # ]
  "]",
  { a = 1 },
]

[ table . "sub" ]  # here
  indented = {a = 1, b = "x"}
text = "a # b = c"

[[many]]
name = 1
[[many]]
name = 2
[table]
late = 1
after = \'\'\'a
b\'\'\'\'
last = 1'''


@pytest.mark.parametrize(
    ("key", "line"),
    [
        (("top",), 2),
        (("top", "inner"), 2),
        (("quoted.key",), 3),
        (("single",), 4),
        (("list",), 8),
        (("list", "a"), 8),
        (("table",), 14),
        (("table", "sub"), 14),
        (("table", "sub", "indented"), 15),
        (("table", "sub", "indented", "b"), 15),
        (("table", "sub", "missing"), 14),
        (("table", "sub", "text"), 16),
        (("many",), 18),
        (("many", "name"), 19),
        (("table", "late"), 23),
        (("table", "after"), 24),
        (("table", "last"), 26),
        (("not",), None),
        (("x",), None),
        ((), None),
    ],
)
def test_the_line_of_a_key_is_found(key: tuple[str, ...], line: int | None) -> None:
    assert LineNumbers(LINED).of(key) == line


NAMES = st.text("abcd.\"'\\ é#=[", min_size=1, max_size=4)
VALUES = st.sampled_from(
    [
        "1",
        '"#"',
        "'['",
        '"""\n\n"""',
        "'''\n'''",
        "[\n1,\n]",
        "{ x = 1 }",
        '"\\""',
        "1979-05-27",
        '""',
    ]
)


@QUICK
@given(st.dictionaries(NAMES, st.dictionaries(NAMES, VALUES, max_size=4), max_size=4))
def test_every_key_of_any_file_has_its_line(tables: dict[str, dict[str, str]]) -> None:
    expected: dict[tuple[str, ...], int] = {}
    lines: list[str] = []
    for table, values in tables.items():
        lines.append(f"[{_quoted(table)}]")
        expected[(table,)] = len(lines)
        for name, value in values.items():
            lines += f"{_quoted(name)} = {value}".split("\n")
            expected[(table, name)] = len(lines) - value.count("\n")
        lines += ["", "# [comment] = '"]
    found = LineNumbers("\n".join(lines))
    assert {key: found.of(key) for key in expected} == expected


@QUICK
@given(st.text("ab.\"'\\ #=[]{}\n\r", max_size=40))
def test_lines_are_counted_in_any_text_whatever(text: str) -> None:
    line = LineNumbers(text).of(("a",))
    assert line is None or 1 <= line <= text.count("\n") + 1


def _quoted(name: str) -> str:
    return msgspec.json.encode(name).decode()


# Any file


def scalars() -> st.SearchStrategy[object]:
    return st.none() | st.booleans() | st.integers(-2, 70_000) | st.floats() | st.text(max_size=5)


def tables() -> st.SearchStrategy[dict[str, object]]:
    words = "server store upstreams models agents keys limits port hosts openai preset quirks"
    more = "headers timeouts tls api_key base_url mcp workers model tools instructions url a"
    names = st.sampled_from(f"{words} {more}".split())
    values = st.recursive(
        scalars(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4),
        max_leaves=20,
    )
    return st.dictionaries(names, values, max_size=5)


def written(value: object) -> Iterator[str]:
    """A value as TOML; None is left out."""
    if isinstance(value, dict):
        pairs = [
            f"{name} = {''.join(written(one))}" for name, one in value.items() if one is not None
        ]
        yield "{ " + ", ".join(pairs) + " }"
    elif isinstance(value, list):
        yield "[" + ", ".join("".join(written(one)) for one in value if one is not None) + "]"
    elif isinstance(value, str):
        yield _quoted(value.replace("\x7f", ""))
    else:
        yield str(value).lower()


@QUICK
@given(tables())
def test_any_file_is_read_or_refused_with_every_key_named(table: dict[str, object]) -> None:
    lines = [f"{name} = {''.join(written(one))}" for name, one in table.items() if one is not None]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "weft.toml"
        path.write_text("\n".join(lines), "utf-8")
        with contextlib.suppress(SettingsError):
            assert load(path, NOTHING).upstreams
            return
        with pytest.raises(SettingsError) as caught:
            load(path, NOTHING)
        found = caught.value.problems
    assert all(one.line and one.key and one.message for one in found)


# Agents


AGENTS = """
[upstreams.here]
preset = "demo"
[models]
fast = "here/chat"
"any-*" = "here/*"
[agents.helper]
model = "fast"
instructions = "file:prompts/helper.md"
tools = ["shop.tools:refund", "mcp:files", "mcp:far"]
approval = { refund = "always" }
limits = { turns = 12, tokens = 5000 }
on_interrupt = "fail"
on_ambiguous = "tell-model"
[agents.other]
model = "here/chat"
[agents.third]
model = "any-thing"
[mcp.files]
command = ["files", "--root", "."]
env = { PATH = "/usr/bin", TOKEN = "env:FILES_TOKEN" }
allow = ["read", "list"]
[mcp.far]
url = "https://mcp.example/mcp/"
headers = { Authorization = "Bearer of bad news" }
trust_hints = true
allow_private = true
timeout = 5
[workers]
lease = 5
"""


def test_agents_and_their_servers_are_read(file: Path) -> None:
    (file.parent / "prompts").mkdir()
    (file.parent / "prompts" / "helper.md").write_text("Be kind.\n")
    settings = read(file, AGENTS, {"FILES_TOKEN": "t-o-k-e-n", "WEFT_WORKERS__CONCURRENCY": "3"})
    assert settings.agents == {
        "helper": AgentSettings(
            "fast",
            "Be kind.\n",
            ("shop.tools:refund", "mcp:files", "mcp:far"),
            {"refund": "always"},
            Limits(turns=12, tokens=5000),
            "fail",
            "tell-model",
        ),
        "other": AgentSettings("here/chat"),
        "third": AgentSettings("any-thing"),
    }
    assert settings.mcp == {
        "files": McpSettings(
            command=("files", "--root", "."),
            env={"PATH": Secret("/usr/bin"), "TOKEN": Secret("t-o-k-e-n")},
            allow=("read", "list"),
        ),
        "far": McpSettings(
            url="https://mcp.example/mcp/",
            headers={"Authorization": Secret("Bearer of bad news")},
            trust_hints=True,
            allow_private=True,
            timeout=5.0,
        ),
    }
    assert settings.workers == WorkerSettings(5.0, 3)
    assert Secret("t-o-k-e-n") in settings.secrets
    assert "t-o-k-e-n" not in repr(settings)
    assert "bad news" not in repr(settings)


def test_the_demo_agent_is_there_if_it_can_work_and_nothing_else_is_set(file: Path) -> None:
    assert read(file, "").agents == {"demo": DEMO_AGENT}
    assert list(read(file, '[agents.mine]\nmodel = "demo/chat"').agents) == ["mine"]
    assert read(file, "[upstreams.ollama]").agents == {}
    assert read(file, "[store]\nenabled = false").agents == {}
    assert read(file, '[models]\ndemo = "demo/chat"').agents == {}


EXPECTED_TOOL = "expected module:function, mcp:SERVER or agent:NAME"
CIRCLE = """model = "fast"
tools = ["agent:b"]
[agents.b]
model = "fast"
tools = ["agent:c"]
[agents.c]
model = "fast"
tools = ["agent:b"]"""


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("", "1: agents.a: model is missing"),
        ('model = ""', "2: agents.a.model: '': no such model; there are fast, demo/…"),
        ('model = "demo"', "2: agents.a.model: 'demo': no such model; did you mean demo/…?"),
        ('model = "fats"', "2: agents.a.model: 'fats': no such model; did you mean fast?"),
        (
            'model = "fast"\ntools = ["refund"]',
            f"3: agents.a.tools: 'refund' is not a tool; {EXPECTED_TOOL}",
        ),
        (
            'model = "fast"\ntools = ["agent:b"]',
            "3: agents.a.tools: 'agent:b': no such agent; there are a",
        ),
        (
            'model = "fast"\ntools = ["agent:a"]',
            "3: agents.a.tools: agents in a circle: a → a",
        ),
        (
            CIRCLE,
            "6: agents.b.tools: agents in a circle: b → c → b",
        ),
        (
            'model = "fast"\ntools = ["agent:b.c"]\n[agents."b.c"]\nmodel = "fast"',
            "3: agents.a.tools: 'agent:b.c': an agent with a '.' in its name cannot be a tool",
        ),
        (
            'model = "fast"\ntools = ["a:b", "a:b"]',
            "3: agents.a.tools: 'a:b' is listed twice",
        ),
        (
            'model = "fast"\ntools = ["mcp:fils"]',
            "3: agents.a.tools: 'mcp:fils': no such MCP server; did you mean files?",
        ),
        (
            'model = "fast"\napproval = { refund = "maybe" }',
            "3: agents.a.approval.refund: expected one of always, never, got text",
        ),
        (
            'model = "fast"\nlimits.turns = 0',
            "3: agents.a.limits.turns: must be at least 1, got 0",
        ),
        (
            'model = "fast"\nlimits = { turn = 1 }',
            "3: agents.a.limits.turn: no such setting; did you mean turns?",
        ),
        (
            'model = "fast"\n[agents.a.limits]\ncost = 0',
            "4: agents.a.limits.cost: must be more than 0, got 0",
        ),
        (
            'model = "fast"\ninstructions = "file:gone.md"',
            (
                "3: agents.a.instructions: the file gone.md cannot be read: "
                "No such file or directory"
            ),
        ),
        (
            'model = "fast"\n[agents.fast]\nmodel = "fast"',
            "3: agents.fast: is already an alias in [models]; choose another name",
        ),
        (
            'model = "fast"\n[agents."a b"]\nmodel = "fast"',
            "3: agents.\"a b\": a name has 1 to 64 letters, digits, '.', '_' and '-'",
        ),
        (
            'model = "fast"\n[mcp.x_y]\ncommand = ["x"]',
            "3: mcp.x_y: a name has 1 to 32 letters, digits and '-'",
        ),
        ('model = "fast"\n[mcp.x]', "3: mcp.x: needs either a command or a url"),
        (
            'model = "fast"\n[mcp.x]\nurl = "ftp://x"',
            "4: mcp.x.url: expected http://… or https://…",
        ),
        (
            'model = "fast"\n[mcp.x]\ncommand = ["x"]\nheaders = { A = "b" }',
            "5: mcp.x.headers: is only for a server with a url",
        ),
        (
            'model = "fast"\n[mcp.x]\nurl = "http://x"\nenv = { A = "env:GONE" }',
            "5: mcp.x.env: is only for a server with a command",
        ),
        (
            'model = "fast"\n[mcp.x]\ncommand = ["x"]\nenv = { A = "env:GONE" }',
            "5: mcp.x.env.A: the variable GONE is not set",
        ),
        (
            'model = "fast"\n[store]\nenabled = false',
            "1: agents: agents need the store, and store.enabled is false",
        ),
    ],
)
def test_a_mistake_of_an_agent_is_named_with_its_line_and_key(
    file: Path, lines: str, said: str
) -> None:
    rest = '\n[models]\nfast = "demo/chat"\n[mcp.files]\ncommand = ["files"]\n'
    found = problems(file, f"[agents.a]\n{lines}{rest}")
    assert f"weft.toml:{said}" == found[0]


# The page


def test_the_examples_of_the_page_can_be_used(file: Path) -> None:
    page = (Path(__file__).parents[1] / "docs" / "settings.md").read_text("utf-8")
    whole, models = (one.body for one in examples(page) if one.language == "toml")
    key = file.with_name("key")
    key.write_text("the-key-of-deepseek")
    whole = whole.replace("/run/secrets/deepseek", str(key))
    file.with_name("helper.md").write_text("Be kind.")
    environ = {"ALICE_KEY": "alices-key-is-a-long-one", "OPENAI_API_KEY": "the-key-of-openai"}
    settings = read(file, whole, environ)
    assert [one.name for one in settings.upstreams] == ["openai", "deepseek", "local", "house"]
    assert settings.warnings == ()
    upstreams = "[upstreams.openai]\n[upstreams.deepseek]\n"
    assert list(read(file, upstreams + models, environ).models) == [
        *("fast", "gpt-5.1", "even", "openai/gpt-5", "some")
    ]


def test_every_setting_is_explained() -> None:
    for wanted, _ in SECTIONS.values():
        assert [row for row in rows(wanted) if row.endswith("|  |")] == []


def test_every_table_is_on_the_page() -> None:
    """Whatever is declared as a table inside another has a section of its own."""
    shown = {wanted for wanted, _ in SECTIONS.values()}
    for wanted in (SettingsFile, *shown):
        for hint in field_types(wanted).values():
            inner = [one for part in union_members(hint) for one in (part, *get_args(part))]
            tables = {
                one for one in inner if isinstance(one, type) and hasattr(one, "__match_args__")
            }
            assert tables <= shown


# OpenTelemetry


def test_the_headers_of_a_collector_may_be_references(tmp_path: Path) -> None:
    text = (
        '[otel]\nendpoint = "https://otlp.example:4318"\nsample = 0.5\n'
        'headers = { a = "env:COLLECTOR", b = "as it is" }\n'
    )
    path = tmp_path / "weft.toml"
    path.write_text(text)
    found = load(path, {"COLLECTOR": "collector-key-0123456789"})
    assert found.otel.headers == {"a": Secret("collector-key-0123456789"), "b": Secret("as it is")}
    assert Secret("collector-key-0123456789") in found.secrets
    assert found.otel.sample == 0.5
    assert load(None, {"WEFT_OTEL__ENDPOINT": "http://127.0.0.1:1"}).otel.endpoint is not None


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('endpoint = "127.0.0.1:4318"', "otel.endpoint: expected http://… or https://…"),
        ('endpoint = "http://user:secret@host"', "otel.endpoint: a user name or password"),
        ("sample = 1.5", "otel.sample: "),
        ('endpoint = "http://h"\nheaders = { a = "env:NONE" }', "the variable NONE is not set"),
    ],
)
def test_a_mistake_in_otel_is_named(tmp_path: Path, line: str, problem: str) -> None:
    path = tmp_path / "weft.toml"
    path.write_text(f"[otel]\n{line}\n")
    with pytest.raises(SettingsError) as failed:
        load(path, {})
    assert problem in str(failed.value)
    assert "secret" not in str(failed.value)
