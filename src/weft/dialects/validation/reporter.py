"""One finding for one fault, however often a stream repeats it."""

from weft.dialects.rules import JsonValue
from weft.dialects.validation.untyped import shown
from weft.findings import LIMIT, Findings

JsonObject = dict[str, JsonValue]

_JSON_TYPES: dict[type, str] = {
    dict: "object",
    list: "array",
    str: "text",
    bool: "boolean",
    int: "integer",
    float: "number",
    type(None): "null",
}


_MAX_WORD = 80


def json_type(value: JsonValue) -> str:
    """What JSON calls the type of this value; a whole number is an integer."""
    return _JSON_TYPES[value.__class__]


def quote_word(word: str) -> str:
    """A word of the wire as a detail shows it: quoted only if it is a strange one."""
    return word if word.isascii() and word.isprintable() and len(word) < _MAX_WORD else shown(word)


class Reporter:
    """Notes a broken rule once for each subject: a fault in every delta is one fault."""

    __slots__ = ("_findings", "_noted")

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._noted: set[tuple[str, object]] = set()

    @property
    def at(self) -> int:
        """The event that is being read."""
        return self._findings.at

    def __call__(self, rule: str, subject: object, detail: str) -> None:
        key = (rule, subject)
        if key not in self._noted:
            if len(self._noted) <= LIMIT:
                self._noted.add(key)
            self._findings.broken(rule, detail)
