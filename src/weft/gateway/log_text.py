"""Lines of the log for people: the same values as in JSON, without what nobody reads on a terminal.

19:05:57 info    req_d3efbfa4  fast -> deepseek  200  812 ms  5+134 tokens
19:05:58 warning req_2584da75  deepseek/chat: attempt 1 failed: HTTP 500; retry in 0.25 s
"""

import time
from collections import Counter
from collections.abc import Mapping

_ID = 12
"""Characters of a request id: enough to find it, and to find it in a header."""

_COLOURS = {"debug": "2", "warning": "33", "error": "31"}


def render_text(line: Mapping[str, object], colours: bool = False) -> str:
    """Returns the line, with a stack below it if it has one."""
    level = str(line["level"])
    moment = line["time"]
    clock = time.strftime("%H:%M:%S", time.localtime(moment if isinstance(moment, float) else None))
    is_request = line["from"] == "weft.request"
    # The fields of an event are for programs: its message says the same in words.
    words = _request(line) if is_request else [str(line.get("message", ""))]
    id = str(line.get("id") or "")[:_ID]
    text = "  ".join(filter(None, (id, *words)))
    # A client chooses the names of models: no escape sequence of its may reach the terminal.
    text = "".join(one if one.isprintable() else f"\\x{ord(one):02x}" for one in text)
    code = _COLOURS.get(level) if colours else None
    shown = f"{level:7}" if code is None else f"\x1b[{code}m{level:7}\x1b[0m"
    stack = str(line.get("stack") or "").rstrip()
    below = "".join(f"\n    {one}" for one in stack.splitlines())
    return f"{clock} {shown} {text}{below}"


def _request(line: Mapping[str, object]) -> list[str]:
    upstream, what = line.get("upstream"), str(line.get("model") or "")
    if not what:
        what = f"{line.get('method', '')} {line.get('path', '')}"
    attempts = line.get("attempts")
    return [
        f"{what} -> {upstream}" if upstream else what,
        str(line["status"]),
        f"{line['ms']:.0f} ms",
        f"{attempts} attempts" if isinstance(attempts, int) and attempts > 1 else "",
        _tokens(line.get("tokens")),
        _error(line.get("error")),
        f"not stored: {line['unstored']}" if "unstored" in line else "",
        _findings(line),
    ]


def _tokens(tokens: object) -> str:
    if not isinstance(tokens, list):
        return ""
    return "+".join("?" if one is None else str(one) for one in tokens) + " tokens"


def _error(error: object) -> str:
    if not isinstance(error, Mapping):
        return ""
    return str(error.get("message") or error.get("code") or error.get("class") or error["kind"])


def _findings(line: Mapping[str, object]) -> str:
    found = line.get("findings")
    if not isinstance(found, list):
        return ""
    codes = Counter(str(one["code"]) for one in found)
    words = [code if count == 1 else f"{code} x{count}" for code, count in codes.items()]
    more = line.get("more_findings")
    return ", ".join(["findings: " + ", ".join(words), *([f"{more} more"] if more else [])])
