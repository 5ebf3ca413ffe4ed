"""Secrets of the settings: `env:NAME`, `file:PATH`, or the text itself."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from weft.gateway.settings.environment import Environment
from weft.gateway.settings.line_numbers import Key
from weft.gateway.settings.problems import Problems
from weft.gateway.settings.schema import KeyRules, KeySettings
from weft.scrub import Secret, names_secret
from weft.upstream.dialing import bypasses
from weft.upstream.urls import is_loopback

_HEADER_SAFE = re.compile(r"[\x21-\x7e]+")
_MIN_LENGTH = 16
_MIN_LITERAL = 8

_LOOKS_LIKE_A_KEY = re.compile(r"(?=.*\d)(?=.*[A-Za-z])\S{16,}")
_PUBLIC_HEADERS = frozenset(
    (
        *("accept", "accept-language", "cache-control", "referer", "user-agent"),
        *("anthropic-beta", "anthropic-version", "openai-beta"),
        *("http-referer", "x-title"),  # OpenRouter: who asks
    )
)


def is_secret_header(name: str, value: str) -> bool:
    """Whether the literal value of a header is a secret: its name says so, or it looks like a key.
    Not every value: if a plain word were replaced, logs and recordings would be spoilt."""
    if name.lower() in _PUBLIC_HEADERS:
        return False
    return names_secret(name) or _LOOKS_LIKE_A_KEY.fullmatch(value) is not None


def is_secret_variable(name: str, value: str) -> bool:
    """The same for a variable of the environment: paths look like keys, so only the name counts."""
    return names_secret(name)


@dataclass(frozen=True, slots=True)
class ClientKey:
    """A key with which a client may use the server."""

    name: str
    secret: Secret
    rules: KeyRules = field(default_factory=KeyRules)


class SecretResolver:
    """Resolves the secrets of the settings, and collects them for the Scrubber."""

    def __init__(self, environment: Environment, folder: Path, problems: Problems) -> None:
        self.found: list[Secret] = []
        self._environment = environment
        self._folder = folder
        self._problems = problems

    def resolve(self, reference: Secret, key: Key) -> Secret | None:
        """Returns the secret itself. A variable or file that is named must exist."""
        form, _, rest = reference.reveal().partition(":")
        if form == "env":
            text = self._environment.get(rest) if rest else None
            if text is not None:
                return self._validated(text.strip(), f"the variable {rest}", key)
            missing = f"the variable {rest} is not set"
            self._problems.add(key, missing if rest else "env: needs the name of a variable")
            return None
        if form == "file":
            path = self._folder / Path(rest).expanduser()
            try:
                return self._validated(path.read_text("utf-8").strip(), f"the file {path}", key)
            except UnicodeDecodeError:
                self._problems.add(key, f"the file {path} is not text")
            except OSError as problem:
                self._problems.add(key, f"the file {path} cannot be read: {problem.strerror}")
            return None
        return self._validated(reference.reveal(), "the secret", key)

    def resolve_values(
        self, values: Mapping[str, Secret], key: Key, is_secret: Callable[[str, str], bool]
    ) -> dict[str, Secret]:
        """Texts stay as they are; references are replaced by what they name."""
        found = {}
        for name, value in values.items():
            is_reference = value.reveal().startswith(("env:", "file:"))
            resolved = self.resolve(value, (*key, name)) if is_reference else value
            if resolved is not None:
                found[name] = resolved
            if not is_reference and is_secret(name, value.reveal()):
                self.add_literal(value.reveal())
        return found

    def add_literal(self, text: str) -> None:
        """Collects a secret; also what follows a scheme, as in `Token abc`."""
        # To replace a short one would spoil every text, and no key is that short.
        words = dict.fromkeys((text, text.rpartition(" ")[2]))
        self.found += [Secret(one) for one in words if len(one) >= _MIN_LITERAL]

    def from_variable(self, variable: str | None, key: Key) -> Secret | None:
        """Returns the secret in the variable of a preset; None if it is not set."""
        text = (self._environment.get(variable) or "").strip() if variable else ""
        return self._validated(text, f"the variable {variable}", key) if text else None

    def proxy_of(self, url: str, key: Key) -> Secret | None:
        """Returns the proxy that the environment names for a URL. A host on this machine has
        none."""
        parts = urlsplit(url)
        host, default = parts.hostname or "", 443 if parts.scheme == "https" else 80
        if is_loopback(host) or bypasses(host, parts.port or default, self._variable("no_proxy")):
            return None
        for text in self._variable(f"{parts.scheme}_proxy")[:1]:
            return self._validated(text, f"the variable {parts.scheme.upper()}_PROXY", key)
        return None

    def _variable(self, name: str) -> list[str]:
        """The values of a variable that is known in lower and upper case; the former wins, as for
        curl."""
        text = self._environment.get(name) or self._environment.get(name.upper()) or ""
        return [one.strip() for one in text.split(",") if one.strip()]

    def client_keys(self, keys: Mapping[str, Secret | KeySettings]) -> tuple[ClientKey, ...]:
        """Returns the client keys. Each must be different, since it identifies its client."""
        found: dict[Secret, ClientKey] = {}
        for name, setting in keys.items():
            key = ("server", "keys", name)
            if not name.strip() or not name.isprintable():
                self._problems.add(key, "the name of a key must be printable")
            rules = KeyRules()
            if isinstance(setting, KeySettings):
                reference = setting.secret
                values = {one: getattr(setting, one) for one in KeyRules.__struct_fields__}
                rules = KeyRules(**values)
            else:
                reference = setting
            secret = self.resolve(reference, key)
            if secret is None:
                continue
            if secret in found:
                self._problems.add(key, f"has the same secret as {found[secret].name}")
            if len(secret.reveal()) < _MIN_LENGTH:
                self._problems.warn(key, f"the key is shorter than {_MIN_LENGTH} characters")
            found.setdefault(secret, ClientKey(name, secret, rules))
        return tuple(found.values())

    def add_password(self, url: str, key: Key) -> None:
        """Collects the password of a URL."""
        try:
            password = urlsplit(url).password
        except ValueError:
            self._problems.add(key, "not a valid URL")
            return
        # A driver may quote it in either form.
        for text in {password, unquote(password)} if password else ():
            self.found.append(Secret(text))

    def _validated(self, text: str, source: str, key: Key) -> Secret | None:
        if not text:
            self._problems.add(key, f"{source} is empty")
            return None
        # Reported at the start, rather than by the first request.
        if not _HEADER_SAFE.fullmatch(text):
            self._problems.add(key, f"{source} contains characters that a header cannot have")
            return None
        secret = Secret(text)
        if secret not in self.found:
            self.found.append(secret)
        return secret
