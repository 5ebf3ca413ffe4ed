"""Tool names and ids in the characters and lengths that a target accepts."""

import re
from functools import cache
from hashlib import sha256

from weft.dialects.requests.codec import Losses
from weft.request import Request


def shorten_identifier(user: str, limit: int) -> str:
    """Returns the identifier of a user; if it is longer than the limit, its hash, which has 64
    characters.
    """
    return user if len(user) <= limit else _sha256(user)


def _sha256(text: str) -> str:
    # Lone surrogates may come in through JSON escapes, and must not raise here.
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


_compiled = cache(re.compile)
"""The few patterns of the dialects; `re` looks for them in a cache of its own, which is slower."""


class NameSanitizer:
    """Makes ids or names legal for a target: equal originals give equal results.

    A legal name stays. Otherwise illegal characters become `_`, and a short hash of the original
    keeps different originals apart.
    """

    __slots__ = ("_illegal", "_legal", "_limit", "changed")

    def __init__(self, characters: str, limit: int) -> None:
        """`characters` is the inside of a character class."""
        self._legal = _compiled(f"[{characters}]{{1,{limit}}}")
        self._illegal = _compiled(f"[^{characters}]")
        self._limit = limit
        self.changed: dict[str, str] = {}
        """The originals of the names that were changed, by their new names."""

    def is_legal(self, original: str) -> bool:
        return self._legal.fullmatch(original) is not None

    def sanitize(self, original: str) -> str:
        if self._legal.fullmatch(original):
            return original
        cleaned = self._illegal.sub("_", original)
        # The underscore and eight digits fit into the limit. Being a hash of the original, they
        # are the same in every request: prompt caches depend on it.
        legal = f"{cleaned[: self._limit - 9]}_{_sha256(original)[:8]}"
        self.changed[legal] = original
        return legal


class ToolNameMap:
    """The names of tools as the target accepts them, the same wherever a tool is named."""

    def __init__(
        self,
        request: Request,
        characters: str,
        limit: int,
        losses: Losses,
        first: str | None = None,
    ) -> None:
        """`characters` is the inside of a character class; `first` that of the first character."""
        # One character is left for the underscore that a wrong first character may need.
        most = limit - 1 if first else limit
        self._sanitizer = NameSanitizer(characters, most)
        self._first = _compiled(f"[{first or characters}]")
        self._legal = _compiled(f"(?=[{first or characters}])[{characters}]{{1,{most}}}")
        self._losses = losses
        self._tools = request.tools
        self.originals: dict[str, str] = {}
        """The original of each changed name; `<namespace>.<name>` for one in a namespace."""

    def is_legal(self, name: str, namespace: str | None) -> bool:
        """Whether a name is sent as it is."""
        return not namespace and self._legal.fullmatch(name) is not None

    def rename(self, name: str, namespace: str | None, path: str) -> str:
        """Returns the name of the tool or call at a path."""
        return self.rename_at(f"{path}.name", name, namespace)

    def rename_at(self, path: str, name: str, namespace: str | None) -> str:
        """Returns the name that is at a path."""
        if not namespace and self._legal.fullmatch(name):  # nearly always
            return name
        # Only Responses has namespaces, and two of them may hold tools of the same name.
        legal = self._sanitizer.sanitize(f"{namespace}__{name}" if namespace else name)
        if not self._first.match(legal):
            legal = f"_{legal}"
        if legal != name:
            original = f"{namespace}.{name}" if namespace else name
            self.originals[legal] = original
            self._losses.adapted(path, f"{original} is sent as {legal}")
        return legal

    def rename_chosen(self, name: str, path: str) -> str:
        """Returns the name that is at a path, given without its namespace."""
        namespaces = {tool.name: tool.namespace for tool in self._tools if tool.namespace}
        return self.rename_at(path, name, namespaces.get(name))
