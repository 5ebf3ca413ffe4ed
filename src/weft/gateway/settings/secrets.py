"""Secrets of the settings: `env:NAME`, `file:PATH`, or the text itself."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from weft.gateway.settings.environment import Environment
from weft.gateway.settings.line_numbers import Key
from weft.gateway.settings.problems import Problems
from weft.gateway.settings.schema import KeySettings
from weft.scrub import Secret

_HEADER_SAFE = re.compile(r"[\x21-\x7e]+")
_MIN_LENGTH = 16


@dataclass(frozen=True, slots=True)
class ClientKey:
    """A key with which a client may use the server."""

    name: str
    secret: Secret


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

    def from_variable(self, variable: str | None, key: Key) -> Secret | None:
        """Returns the secret in the variable of a preset; None if it is not set."""
        text = (self._environment.get(variable) or "").strip() if variable else ""
        return self._validated(text, f"the variable {variable}", key) if text else None

    def client_keys(self, keys: Mapping[str, Secret | KeySettings]) -> tuple[ClientKey, ...]:
        """Returns the client keys. Each must be different, since it identifies its client."""
        found: dict[Secret, ClientKey] = {}
        for name, setting in keys.items():
            key = ("server", "keys", name)
            if not name.strip() or not name.isprintable():
                self._problems.add(key, "the name of a key must be printable")
            reference = setting.secret if isinstance(setting, KeySettings) else setting
            secret = self.resolve(reference, key)
            if secret is None:
                continue
            if secret in found:
                self._problems.add(key, f"has the same secret as {found[secret].name}")
            if len(secret.reveal()) < _MIN_LENGTH:
                self._problems.warn(key, f"the key is shorter than {_MIN_LENGTH} characters")
            found.setdefault(secret, ClientKey(name, secret))
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
