"""SecretResolver of the settings: `env:NAME`, `file:PATH`, or the text itself."""

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
    """Who may use the server, and how it shows."""

    name: str
    secret: Secret


class SecretResolver:
    """Finds the secrets that the settings speak of, and remembers them for the Scrubber."""

    def __init__(self, environment: Environment, folder: Path, problems: Problems) -> None:
        self.found: list[Secret] = []
        self._environment = environment
        self._folder = folder
        self._problems = problems

    def resolve(self, told: Secret, key: Key) -> Secret | None:
        """Returns what is to be sent. A variable or file that is named must be there."""
        form, _, rest = told.reveal().partition(":")
        if form == "env":
            return self._variable(rest, key)
        if form == "file":
            return self._file(rest, key)
        return self._validated(told.reveal(), "the secret", key)

    def from_variable(self, variable: str | None, key: Key) -> Secret | None:
        """Returns what a host's usual variable holds; nothing if it is not set."""
        text = (self._environment.get(variable) or "").strip() if variable else ""
        return self._validated(text, f"the variable {variable}", key) if text else None

    def client_keys(self, keys: Mapping[str, Secret | KeySettings]) -> tuple[ClientKey, ...]:
        """Returns the keys of the clients: no two alike, for each tells who asks."""
        found: dict[Secret, ClientKey] = {}
        for name, told in keys.items():
            key = ("server", "keys", name)
            if not name.strip() or not name.isprintable():
                self._problems.add(key, "a key needs a name that can be printed")
            if isinstance(told, KeySettings):
                told = told.secret
            secret = self.resolve(told, key)
            if secret is None:
                continue
            if secret in found:
                self._problems.add(key, f"has the same secret as {found[secret].name}")
            if len(secret.reveal()) < _MIN_LENGTH:
                self._problems.warn(
                    key, f"a secret of less than {_MIN_LENGTH} letters can be guessed"
                )
            found.setdefault(secret, ClientKey(name, secret))
        return tuple(found.values())

    def add_password(self, url: str, key: Key) -> None:
        """Remembers the password of an address."""
        try:
            password = urlsplit(url).password
        except ValueError:
            self._problems.add(key, "no address")
            return
        for text in {password, unquote(password)} if password else ():
            self.found.append(Secret(text))

    def _variable(self, name: str, key: Key) -> Secret | None:
        text = self._environment.get(name) if name else None
        if text is None:
            wrong = f"the variable {name} is not set" if name else "env: needs a variable's name"
            self._problems.add(key, wrong)
            return None
        return self._validated(text.strip(), f"the variable {name}", key)

    def _file(self, name: str, key: Key) -> Secret | None:
        path = self._folder / Path(name).expanduser()
        try:
            return self._validated(path.read_text("utf-8").strip(), f"the file {path}", key)
        except UnicodeDecodeError:
            self._problems.add(key, f"the file {path} is not text")
        except OSError as problem:
            self._problems.add(key, f"the file {path} cannot be read: {problem.strerror}")
        return None

    def _validated(self, text: str, whence: str, key: Key) -> Secret | None:
        if not text:
            self._problems.add(key, f"{whence} is empty")
            return None
        if not _HEADER_SAFE.fullmatch(text):
            self._problems.add(key, f"{whence} has characters that no header can carry")
            return None
        secret = Secret(text)
        if secret not in self.found:
            self.found.append(secret)
        return secret
