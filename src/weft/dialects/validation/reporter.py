"""One finding for one defect, however often a stream repeats it."""

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


# Names of events and fields are shorter; longer ones are quoted, which cuts them.
_MAX_WORD = 80


def json_type(value: JsonValue) -> str:
    """The JSON type of a value; a number without a fraction is an integer."""
    # Exact classes: `bool` is a subclass of `int`.
    return _JSON_TYPES[value.__class__]


def quote_word(word: str) -> str:
    """A word of the wire as a finding shows it: quoted if it has unusual characters."""
    return word if word.isascii() and word.isprintable() and len(word) < _MAX_WORD else shown(word)


class Reporter:
    """Reports a broken rule once for each subject: the same defect in every delta is one."""

    __slots__ = ("_findings", "_reported")

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._reported: set[tuple[str, object]] = set()

    @property
    def at(self) -> int:
        """The number of the current event."""
        return self._findings.at

    def __call__(self, rule: str, subject: object, detail: str) -> None:
        key = (rule, subject)
        if key not in self._reported:
            # A hostile stream can have any number of subjects; `Findings` is bounded as well.
            if len(self._reported) <= LIMIT:
                self._reported.add(key)
            self._findings.broken(rule, detail)
