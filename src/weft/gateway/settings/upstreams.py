"""Builds the configuration of each upstream: presets, quirks and secrets are resolved."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from weft.context import Quirks
from weft.dialects import DIALECTS, KEY_HEADERS, http_of
from weft.gateway.settings.line_numbers import Key
from weft.gateway.settings.problems import Problems, closest, unknown_name
from weft.gateway.settings.reader import TableReader
from weft.gateway.settings.schema import UpstreamSettings
from weft.gateway.settings.secrets import SecretResolver, is_secret_header
from weft.scrub import MARK, Secret
from weft.upstream.base import UpstreamConfig
from weft.upstream.catalog import HOSTS, Host
from weft.upstream.demo import MODELS
from weft.upstream.dialing import parse_proxy
from weft.upstream.urls import DEMO, BaseUrl, parse_base_url

UPSTREAM_DIALECTS: dict[str, str] = {
    name: dialect.name
    for dialect in DIALECTS.values()
    if dialect.request is not None
    for name in (dialect.name, *dialect.aliases)
}
"""The dialects that an upstream can have, by all their names."""

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[\x21-\x7e](?:[\t\x20-\x7e]*[\x21-\x7e])?")
RESERVED_HEADERS = frozenset(
    (
        *KEY_HEADERS,
        *("cookie", "proxy-authorization"),
        *("connection", "expect", "host", "keep-alive", "proxy-connection", "te", "upgrade"),
        *("accept-encoding", "content-encoding", "content-length", "content-type"),
        *("trailer", "transfer-encoding"),
    )
)
"""Headers that the settings cannot set: they hold keys, or belong to the connection."""


class _Headers(dict[str, str]):
    """Headers that are not printed: a value may be a secret."""

    def __repr__(self) -> str:
        return MARK if self else "{}"


def build_upstreams(
    upstreams: Mapping[str, UpstreamSettings],
    secrets: SecretResolver,
    folder: Path,
    problems: Problems,
) -> tuple[UpstreamConfig, ...]:
    """Returns the valid upstreams, in order; the demo upstream if none is set."""
    # So that `weft serve` answers without any settings.
    chosen = upstreams or {"demo": UpstreamSettings()}
    found = [
        _UpstreamBuilder(name, settings, secrets, folder, problems).build()
        for name, settings in chosen.items()
    ]
    return tuple(one for one in found if one is not None)


class _UpstreamBuilder:
    """Builds one upstream, and reports its problems."""

    def __init__(
        self,
        name: str,
        settings: UpstreamSettings,
        secrets: SecretResolver,
        folder: Path,
        problems: Problems,
    ) -> None:
        self._name = name
        self._key: Key = ("upstreams", name)
        self._settings = settings
        self._secrets = secrets
        self._folder = folder
        self._problems = problems
        self._preset = self._find_preset()

    def build(self) -> UpstreamConfig | None:
        """Returns None if it has no dialect or no address."""
        settings, key = self._settings, self._key
        if not _NAME.fullmatch(self._name):
            self._add("a name may contain only lower-case letters, digits, '.', '_' and '-'")
        dialect, address = self._dialect(), self._address()
        for model in settings.models:
            if not model or not model.isprintable() or settings.models.count(model) > 1:
                self._add(f"{model!r} is not a model name, or is listed twice", "models")
                break
        is_demo = address is not None and address.origin == "demo"
        config = UpstreamConfig(
            name=self._name,
            dialect=dialect or "",
            base_url=address.url if address else "",
            key=self._api_key(),
            quirks=self._quirks(dialect),
            headers=self._headers(),
            timeouts=settings.timeouts,
            concurrency=settings.concurrency,
            tls=replace(
                settings.tls,
                ca=self._file(settings.tls.ca, "ca"),
                certificate=self._file(settings.tls.certificate, "certificate"),
            ),
            proxy=self._proxy(address),
            pool=settings.pool,
            retry=settings.retry,
            breaker=settings.breaker,
            models=settings.models or (tuple(MODELS) if is_demo else ()),
            discover=not settings.models if settings.discover is None else settings.discover,
            betas=settings.betas,
            origin=address.origin if address else "",
        )
        # One problem is enough: what is missing may be missing because of another.
        if not self._problems.has_any(key) and not config.base_url:
            near = closest(self._name, HOSTS)
            hint = f"did you mean {near}?" if near else "`weft config presets` lists them"
            why = f"no preset has this name; {hint}"
            if self._preset is not None:
                why = f"the preset {self._preset.name} has none"
            self._add(f"base_url is missing: {why}")
        elif not self._problems.has_any(key) and not config.dialect:
            self._add(f"dialect is missing; expected one of {', '.join(UPSTREAM_DIALECTS)}")
        if address is not None:
            self._warn(config, address)
        return config if config.dialect and config.base_url else None

    def _add(self, message: str, *names: str) -> None:
        self._problems.add((*self._key, *names), message)

    def _find_preset(self) -> Host | None:
        """The preset; without one and without `base_url`, that of the upstream's own name."""
        name = self._settings.preset
        if name is None:
            # With a base_url of its own, an upstream named `openai` may be any server.
            return HOSTS.get(self._name) if self._settings.base_url is None else None
        if name not in HOSTS:
            self._add(unknown_name("preset", name, HOSTS), "preset")
        return HOSTS.get(name)

    def _dialect(self) -> str | None:
        preset, name = self._preset, self._settings.dialect
        if name is None:
            return preset.dialect if preset else None
        found = UPSTREAM_DIALECTS.get(name)
        if found is None:
            self._add(unknown_name("dialect", name, UPSTREAM_DIALECTS), "dialect")
        elif preset and self._settings.base_url is None:
            # OpenAI's host, for example, serves chat and Responses below the same URL.
            serves = preset.base_url in DEMO or http_of(preset.dialect).base == http_of(found).base
            if not serves:
                message = f"the preset {preset.name} is for {preset.dialect}"
                self._add(f"{message}; {found} needs a base_url", "dialect")
        return found

    def _address(self) -> BaseUrl | None:
        text = self._settings.base_url
        if text is None and self._preset:
            text = self._preset.base_url
        try:
            return None if text is None else parse_base_url(text)
        except ValueError as problem:
            self._add(str(problem), "base_url")
            return None

    def _api_key(self) -> Secret | None:
        key, preset = (*self._key, "api_key"), self._preset
        if self._settings.api_key is not None:
            return self._secrets.resolve(self._settings.api_key, key)
        if preset is None:
            return None
        found = self._secrets.from_variable(preset.variable, key)
        # A header may hold the key.
        if found is None and preset.needs_key and not self._settings.headers:
            hint = f": {preset.variable} is not set" if preset.variable else ""
            self._problems.warn(key, f"this host needs an API key{hint}")
        return found

    def _quirks(self, dialect: str | None) -> Quirks | None:
        given, preset = self._settings.quirks, self._preset
        # Quirks are of a dialect: those of a preset for another one mean nothing here.
        own = preset.quirks if preset and preset.dialect == dialect else None
        if given is None or dialect is None:
            return own
        if isinstance(given, dict):
            kind = DIALECTS[dialect].quirks
            fields = TableReader(self._problems).fields(given, kind, (*self._key, "quirks"))
            checked = cast("dict[str, Any]", fields)  # by the types of these very fields
            return replace(own or kind(), **checked)
        named = HOSTS.get(given)
        if named is not None and named.dialect == dialect:
            return named.quirks
        problem = unknown_name("preset", given, HOSTS)
        if named is not None:
            problem = f"the quirks of {given} are for {named.dialect}, not {dialect}"
        self._add(problem, "quirks")
        return None

    def _headers(self) -> dict[str, str]:
        found = _Headers()
        for name, value in self._settings.headers.items():
            if not _HEADER.fullmatch(name):
                self._add("invalid header name", "headers", name)
            elif name.lower() in RESERVED_HEADERS:
                self._add("this header is reserved", "headers", name)
            elif name.lower() in found:
                self._add("duplicate header (names are case-insensitive)", "headers", name)
            elif value.startswith(("env:", "file:")):
                secret = self._secrets.resolve(Secret(value), (*self._key, "headers", name))
                found[name.lower()] = secret.reveal() if secret else ""
            else:
                found[name.lower()] = value
                if is_secret_header(name, value):
                    self._secrets.add_literal(value)
                if not _HEADER_VALUE.fullmatch(value):
                    expected = "expected visible ASCII characters, blanks only inside"
                    self._add(f"invalid header value; {expected}", "headers", name)
        return found

    def _proxy(self, address: BaseUrl | None) -> Secret | None:
        given, key = self._settings.proxy, (*self._key, "proxy")
        if given is not None and given.reveal() == "none":
            return None
        found = None if given is None else self._secrets.resolve(given, key)
        if given is None and address is not None and address.origin != "demo":
            found = self._secrets.proxy_of(address.url, key)
        try:
            if found is not None:
                parse_proxy(found.reveal())
        except ValueError as problem:
            self._add(str(problem), "proxy")
            return None
        return found

    def _file(self, name: str | None, setting: str) -> str | None:
        """The path of a file of `[tls]`, relative to the folder of the settings."""
        if name is None:
            return None
        path = self._folder / Path(name).expanduser()
        if not path.is_file():
            self._add(f"no such file: {path}", "tls", setting)
        return str(path)

    def _warn(self, config: UpstreamConfig, address: BaseUrl) -> None:
        where = (*self._key, "base_url")
        tails = http_of(config.dialect).tails if config.dialect else ()
        tail = next((one for one in tails if address.url.endswith(one)), None)
        if tail is not None:
            self._problems.warn(where, f"ends with {tail}, which is added automatically")
        # Not for loopback, where local servers have no certificate.
        if address.exposed and config.key is not None:
            self._problems.warn(where, "the API key is sent unencrypted: http, not https")
        if not config.tls.verify:
            message = "verify is off: the identity of the host is not checked"
            self._problems.warn((*self._key, "tls"), message)
