"""Tool names and ids in the characters and lengths that a target accepts."""

import re
from hashlib import sha256

from weft.dialects.requests.codec import Losses
from weft.request import (
    Request,
)


class NameSanitizer:
    """Ids or names as a target takes them: the same original always gives the same word.

    What is legal stays. Else letters the target refuses become `_`, and a short hash of the
    original keeps what was two apart.
    """

    __slots__ = ("_illegal", "_limit", "changed")

    def __init__(self, letters: str, limit: int) -> None:
        """`letters` is the inside of a character class."""
        self._illegal = re.compile(f"[^{letters}]")
        self._limit = limit
        self.changed: dict[str, str] = {}
        """What was spelled anew: the new word, and its original."""

    def sanitize(self, original: str) -> str:
        cleaned = self._illegal.sub("_", original)
        if cleaned == original and 0 < len(original) <= self._limit:
            return original
        mark = sha256(original.encode("utf-8", "surrogatepass")).hexdigest()[:8]
        spelled = f"{cleaned[: self._limit - 9]}_{mark}"
        self.changed[spelled] = original
        return spelled


class ToolNameMap:
    """The names of tools as the target takes them, the same in every place they stand."""

    def __init__(
        self, request: Request, letters: str, limit: int, losses: Losses, first: str | None = None
    ) -> None:
        """`letters` is the inside of a character class; `first` that of those to begin with."""
        self._sanitizer = NameSanitizer(letters, limit - 1 if first else limit)
        self._first = re.compile(f"[{first or letters}]")
        self._losses = losses
        self._groups = {tool.name: tool.namespace for tool in request.tools if tool.namespace}
        self.originals: dict[str, str] = {}
        """The original of each name that had to change; `<namespace>.<name>` for a grouped one."""

    def rename(self, name: str, namespace: str | None, path: str) -> str:
        """The name of what is at a path."""
        return self.rename_at(f"{path}.name", name, namespace)

    def rename_at(self, where: str, name: str, namespace: str | None) -> str:
        """A name that is itself at a path."""
        flat = f"{namespace}__{name}" if namespace else name
        spelled = self._sanitizer.sanitize(flat)
        if not self._first.match(spelled):
            spelled = f"_{spelled}"
        if spelled != name:
            original = f"{namespace}.{name}" if namespace else name
            self.originals[spelled] = original
            self._losses.adapted(where, f"{original} is sent as {spelled}")
        return spelled

    def rename_chosen(self, name: str, where: str) -> str:
        """A name, itself at a path, that is told without its group."""
        return self.rename_at(where, name, self._groups.get(name))


IDENTIFIER_LIMIT = 64


def shorten_identifier(user: str) -> str:
    """Returns who the user is in at most 64 letters: a longer one is hashed."""
    if len(user) <= IDENTIFIER_LIMIT:
        return user
    return sha256(user.encode("utf-8", "surrogatepass")).hexdigest()
