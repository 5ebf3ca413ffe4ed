"""The upstreams of the settings become places: presets, quirks and secrets are resolved."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from weft.dialects import DIALECTS, http_of
from weft.gateway.settings.line_numbers import Key
from weft.gateway.settings.problems import Problems, closest, unknown_name
from weft.gateway.settings.reader import TableReader
from weft.gateway.settings.schema import UpstreamSettings
from weft.gateway.settings.secrets import SecretResolver
from weft.gateway.settings.urls import DEMO, BaseUrl, parse_base_url
from weft.scrub import MARK, Secret
from weft.upstream.base import Tls, UpstreamConfig
from weft.upstream.catalog import HOSTS, AnyQuirks, Host
from weft.upstream.demo import MODELS

UPSTREAM_DIALECTS: dict[str, str] = {
    name: dialect.name
    for dialect in DIALECTS.values()
    if dialect.request is not None
    for name in (dialect.name, *dialect.aliases)
}
"""The dialects that an upstream can be asked in, by all their names."""

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[\x21-\x7e](?:[\t\x20-\x7e]*[\x21-\x7e])?")
RESERVED_HEADERS = frozenset(
    (
        *("authorization", "cookie", "proxy-authorization", "x-api-key", "x-goog-api-key"),
        *("connection", "expect", "host", "keep-alive", "proxy-connection", "te", "upgrade"),
        *("accept-encoding", "content-encoding", "content-length", "content-type"),
        *("trailer", "transfer-encoding"),
    )
)
"""Header fields that are not the settings' to choose: each is a key, or says how to read."""


class _Headers(dict[str, str]):
    """Header fields. They are not printed: a value may be a secret."""

    def __repr__(self) -> str:
        return MARK if self else "{}"


class UpstreamBuilder:
    """Makes a place of every upstream that can be one."""

    def __init__(self, secrets: SecretResolver, folder: Path, problems: Problems) -> None:
        self._secrets = secrets
        self._folder = folder
        self._problems = problems

    def build(self, upstreams: Mapping[str, UpstreamSettings]) -> tuple[UpstreamConfig, ...]:
        """Returns the places, in their order. None at all: the demo alone."""
        chosen = upstreams or {"demo": UpstreamSettings()}
        found = [self._build(name, one) for name, one in chosen.items()]
        return tuple(place for place in found if place is not None)

    def _build(self, name: str, told: UpstreamSettings) -> UpstreamConfig | None:
        key = ("upstreams", name)
        if not _NAME.fullmatch(name):
            self._problems.add(key, "a name has small letters, digits, '.', '_' and '-' only")
        host = self._host(name, told, key)
        dialect = self._dialect(told, host, (*key, "dialect"))
        address = self._address(told, host, (*key, "base_url"))
        secret = self._key(told, host, (*key, "api_key"))
        place = UpstreamConfig(
            name=name,
            dialect=dialect or "",
            base_url=address.url if address else "",
            key=secret,
            quirks=self._quirks(told.quirks, host, dialect, (*key, "quirks")),
            headers=self._headers(told.headers, (*key, "headers")),
            timeouts=told.timeouts,
            concurrency=told.concurrency,
            tls=self._tls(told.tls, (*key, "tls")),
            retry=told.retry,
            breaker=told.breaker,
            models=self._models(told.models, (*key, "models")) or _default_models(address),
            betas=told.betas,
            origin=address.origin if address else "",
        )
        if not self._problems.has_any(key):
            self._check_complete(place, host, key)
        if address is not None:
            self._add_warnings(place, address, key)
        return place if place.dialect and place.base_url else None

    def _host(self, name: str, told: UpstreamSettings, key: Key) -> Host | None:
        """The preset; that of the upstream's own name if nothing says where it is."""
        if told.preset is None:
            return HOSTS.get(name) if told.base_url is None else None
        if told.preset not in HOSTS:
            self._problems.add((*key, "preset"), unknown_name("preset", told.preset, HOSTS))
        return HOSTS.get(told.preset)

    def _dialect(self, told: UpstreamSettings, host: Host | None, key: Key) -> str | None:
        if told.dialect is None:
            return host.dialect if host else None
        found = UPSTREAM_DIALECTS.get(told.dialect)
        if found is None:
            self._problems.add(key, unknown_name("dialect", told.dialect, UPSTREAM_DIALECTS))
        elif host and told.base_url is None and not _serves(host, found):
            message = f"the preset {host.name} is asked in {host.dialect}; {found} needs a base_url"
            self._problems.add(key, message)
        return found

    def _address(self, told: UpstreamSettings, host: Host | None, key: Key) -> BaseUrl | None:
        text = host.base_url if told.base_url is None and host else told.base_url
        if text is None:
            return None
        try:
            return parse_base_url(text)
        except ValueError as problem:
            self._problems.add(key, str(problem))
            return None

    def _key(self, told: UpstreamSettings, host: Host | None, key: Key) -> Secret | None:
        if told.api_key is not None:
            return self._secrets.resolve(told.api_key, key)
        if host is None:
            return None
        found = self._secrets.from_variable(host.variable, key)
        if found is None and host.needs_key and not told.headers:
            hint = f": {host.variable} is not set" if host.variable else ""
            self._problems.warn(key, f"this host wants a key, and there is none{hint}")
        return found

    def _quirks(
        self, told: str | dict[str, object] | None, host: Host | None, dialect: str | None, key: Key
    ) -> AnyQuirks | None:
        own = host.quirks if host and host.dialect == dialect else None
        if told is None or dialect is None:
            return own
        if isinstance(told, str):
            return self._preset_quirks(told, dialect, key)
        kind = cast("type[AnyQuirks]", DIALECTS[dialect].quirks)
        given = TableReader(self._problems).fields(told, kind, key)
        checked = cast("dict[str, Any]", given)  # by the types of these very fields
        return replace(own or kind(), **checked)

    def _preset_quirks(self, name: str, dialect: str, key: Key) -> AnyQuirks | None:
        host = HOSTS.get(name)
        if host is None:
            self._problems.add(key, unknown_name("preset", name, HOSTS))
        elif host.dialect != dialect:
            self._problems.add(key, f"the quirks of {name} are for {host.dialect}, not {dialect}")
        else:
            return host.quirks
        return None

    def _headers(self, told: Mapping[str, str], key: Key) -> dict[str, str]:
        found = _Headers()
        for name, value in told.items():
            where = (*key, name)
            if not _HEADER.fullmatch(name):
                self._problems.add(where, "no header has such a name")
            elif name.lower() in RESERVED_HEADERS:
                self._problems.add(where, "this header is not for the settings to choose")
            elif name.lower() in found:
                self._problems.add(where, "is there twice; the case of the letters does not count")
            else:
                found[name.lower()] = self._header(value, where)
        return found

    def _header(self, value: str, key: Key) -> str:
        if value.startswith(("env:", "file:")):
            secret = self._secrets.resolve(Secret(value), key)
            return secret.reveal() if secret else ""
        if not _HEADER_VALUE.fullmatch(value):
            self._problems.add(
                key, "a header's value has visible letters of ASCII, and blanks inside"
            )
        return value

    def _tls(self, told: Tls, key: Key) -> Tls:
        return replace(
            told,
            ca=self._file(told.ca, (*key, "ca")),
            certificate=self._file(told.certificate, (*key, "certificate")),
        )

    def _file(self, name: str | None, key: Key) -> str | None:
        """A file, named from the folder of the settings."""
        if name is None:
            return None
        path = self._folder / Path(name).expanduser()
        if not path.is_file():
            self._problems.add(key, f"there is no file {path}")
        return str(path)

    def _models(self, told: tuple[str, ...], key: Key) -> tuple[str, ...]:
        for model in told:
            if not model or not model.isprintable() or told.count(model) > 1:
                self._problems.add(key, f"{model!r} is no name of a model, or is there twice")
                break
        return told

    def _check_complete(self, place: UpstreamConfig, host: Host | None, key: Key) -> None:
        """Nothing else is wrong: is everything there?"""
        if not place.base_url:
            self._problems.add(key, f"base_url is missing: {_missing_url_hint(place.name, host)}")
        elif not place.dialect:
            self._problems.add(key, f"dialect is missing; there are {', '.join(UPSTREAM_DIALECTS)}")

    def _add_warnings(self, place: UpstreamConfig, address: BaseUrl, key: Key) -> None:
        where = (*key, "base_url")
        for tail in http_of(place.dialect).tails if place.dialect else ():
            if address.url.endswith(tail):
                self._problems.warn(where, f"ends with {tail}, which is added anyhow")
                break
        if address.exposed and place.key is not None:
            self._problems.warn(where, "the key can be read on the way: http, not https")
        if not place.tls.verify:
            self._problems.warn((*key, "tls"), "verify is off: anybody can pretend to be this host")


def _serves(host: Host, dialect: str) -> bool:
    """Whether the address of a host does for a dialect too."""
    return host.base_url in DEMO or http_of(host.dialect).base == http_of(dialect).base


def _missing_url_hint(name: str, host: Host | None) -> str:
    if host is not None:
        return f"the preset {host.name} has none"
    near = closest(name, HOSTS)
    hint = f"did you mean {near}?" if near else "`weft config presets` lists them"
    return f"there is no preset of this name; {hint}"


def _default_models(address: BaseUrl | None) -> tuple[str, ...]:
    """The models of an upstream that names none: only those of the demo are known."""
    return tuple(MODELS) if address is not None and address.origin == "demo" else ()
