"""The catalog: hosts that can be asked by name alone."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.tables import each_row
from weft.dialects import DIALECTS
from weft.dialects.openai_chat.quirks import ChatQuirks
from weft.scrub import Secret
from weft.upstream import catalog
from weft.upstream.base import credentials, endpoint
from weft.upstream.catalog import HOSTS, Host
from weft.upstream.urls import is_loopback, parse_base_url

CAPTURES = Path(__file__).parent / "captures" / "openai_chat"
NAME = re.compile(r"[a-z0-9][a-z0-9-]*")
VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*")

EXPECTED = {
    *("openai", "openai-chat", "anthropic", "gemini", "azure", "bedrock", "demo"),
    *("deepseek", "openrouter", "mistral", "groq", "xai", "together", "fireworks", "moonshot"),
    *("dashscope", "cerebras", "perplexity", "nvidia", "deepinfra", "huggingface", "github"),
    *("ollama", "vllm", "lmstudio", "llamacpp", "sglang", "litellm"),
}
LOCAL = {
    "ollama": 11434,
    "vllm": 8000,
    "lmstudio": 1234,
    "llamacpp": 8080,
    "sglang": 30000,
    "litellm": 4000,
}


def rows() -> list[Host]:
    return list(HOSTS.values())


def test_the_well_known_hosts_have_presets() -> None:
    assert set(HOSTS) >= EXPECTED


def test_each_preset_is_stored_under_its_name() -> None:
    assert [host.name for host in rows()] == list(HOSTS)


@each_row("host", rows(), ids=lambda host: host.name)
def test_a_preset_has_all_that_a_request_needs(host: Host) -> None:
    dialect = DIALECTS[host.dialect]
    assert dialect.request is not None
    assert dialect.decoder is not None
    assert endpoint(host.dialect, "m", stream=True).startswith("/")
    assert credentials(host.dialect, Secret("s-e-c")) != credentials(host.dialect, None)
    assert NAME.fullmatch(host.name)
    assert host.variable is None or VARIABLE.fullmatch(host.variable)


@each_row("host", rows(), ids=lambda host: host.name)
def test_a_base_url_ends_before_the_path_that_the_dialect_adds(host: Host) -> None:
    if host.base_url is None:
        assert "base_url: https://" in host.note  # it says what it looks like
        return
    assert parse_base_url(host.base_url).url == host.base_url
    added = endpoint(host.dialect, "m", stream=False).split("/")[1]
    assert host.base_url.rpartition("/")[2] != added


@each_row("host", rows(), ids=lambda host: host.name)
def test_remote_presets_use_https_and_a_key(host: Host) -> None:
    if host.base_url is None:
        assert host.needs_key
        return
    address = parse_base_url(host.base_url)
    assert not address.exposed
    own = host.base_url == "demo:" or is_loopback(address.origin.partition(":")[0])
    assert (host.needs_key, bool(host.variable) or own) == (not own, True)


@pytest.mark.parametrize(("name", "port"), LOCAL.items())
def test_local_presets_use_the_default_port(name: str, port: int) -> None:
    assert HOSTS[name].base_url == f"http://127.0.0.1:{port}/v1"


@each_row("host", rows(), ids=lambda host: host.name)
def test_quirks_of_a_preset_are_its_dialects_and_not_the_defaults(host: Host) -> None:
    if host.quirks is None:
        return
    assert host.dialect == "openai-chat"  # no other wire needs any so far
    assert isinstance(host.quirks, ChatQuirks)
    assert host.quirks != ChatQuirks()


@each_row("host", rows(), ids=lambda host: host.name)
def test_quirks_of_models_are_not_in_presets(host: Host) -> None:
    if isinstance(host.quirks, ChatQuirks):
        plain = replace(host.quirks, text_markup_calls=None, implicit_think=False)
        assert host.quirks == plain


def test_captures_named_as_evidence_exist() -> None:
    """Those in comments are checked by test_why_comments."""
    source = Path(catalog.__file__).read_text("utf-8")
    assert len(re.findall("# capture: ", source)) >= 5
    for name in ("markup-calls-tokens", "markup-calls-json", "orphan-think-closer"):
        assert name in source
        assert (CAPTURES / f"{name}.sse").exists()


def test_presets_that_send_reasoning_back_name_a_capture_of_that_field() -> None:
    """The field in which a host wants its thoughts back is the one in which it sends them."""
    shown = {
        "reasoning_content": "reasoning-content-field",
        "reasoning": "reasoning-field",
        "reasoning_details": "reasoning-and-its-details",
    }
    wanted = {
        field
        for host in rows()
        if isinstance(host.quirks, ChatQuirks)
        for field in host.quirks.reasoning_back
    }
    assert wanted == set(shown)
    for field in wanted:
        assert f'"{field}"' in (CAPTURES / f"{shown[field]}.sse").read_text("utf-8")
