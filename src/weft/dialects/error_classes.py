"""What an error means, whichever wire it came from: its class, and the words that wires have.

An error travels as an error part: `code` is the wire's own word, `status` the HTTP status. From
these two `class_of` tells the class; where they tell less than the body did, `extra` names it. A
dialect's `errors.py` says what it writes for each class, so that reading with one and writing
with another gives the right error: there is no table of pairs.
"""

import html
import json
import math
import re
from typing import Literal, Protocol

import msgspec
from msgspec import UNSET, Raw

from weft.assembler import Failure
from weft.partial_json import mended, whole_characters
from weft.parts import ErrorKind, ErrorPart, Json

ErrorClass = Literal[
    "bad-request",
    "context-too-long",
    "unsupported",
    "auth",
    "billing",
    "permission",
    "not-found",
    "conflict",
    "too-large",
    "rate",
    "cancelled",
    "server",
    "bad-upstream-answer",
    "upstream-auth",
    "overloaded",
    "timeout",
]


class ErrorDefinition(msgspec.Struct, frozen=True):
    """One class: its HTTP status where a wire has no other, and whether a retry may help.

    `code` is the word that wires with room for a second one are given; None where the class is
    what the status says anyway.
    """

    status: int
    retryable: bool
    code: str | None


CLASSES: dict[ErrorClass, ErrorDefinition] = {
    "bad-request": ErrorDefinition(400, False, None),
    "context-too-long": ErrorDefinition(400, False, "context_length_exceeded"),
    "unsupported": ErrorDefinition(400, False, "unsupported_parameter"),
    "auth": ErrorDefinition(401, False, "invalid_api_key"),
    "billing": ErrorDefinition(402, False, "insufficient_quota"),
    "permission": ErrorDefinition(403, False, "permission_denied"),
    "not-found": ErrorDefinition(404, False, "model_not_found"),
    "conflict": ErrorDefinition(409, True, "conflict"),
    "too-large": ErrorDefinition(413, False, "request_too_large"),
    "rate": ErrorDefinition(429, True, "rate_limit_exceeded"),
    "cancelled": ErrorDefinition(499, False, "cancelled"),
    "server": ErrorDefinition(500, True, None),
    "bad-upstream-answer": ErrorDefinition(502, True, "bad_upstream_answer"),
    "upstream-auth": ErrorDefinition(502, False, "upstream_auth"),
    "overloaded": ErrorDefinition(503, True, "overloaded"),
    "timeout": ErrorDefinition(504, True, "timeout"),
}

_SPECIFIC: dict[ErrorClass, str] = {
    "context-too-long": "context_length_exceeded exceed_context_size_error",
    "unsupported": "unsupported_parameter unsupported_value unimplemented",
    "auth": "invalid_api_key api_key_invalid authentication_error unauthenticated unauthorized",
    "billing": "insufficient_quota billing_error billing_hard_limit_reached billing_not_active "
    "enforced_spend_limit_reached payment_required",
    "permission": "permission_denied permission_error forbidden "
    "unsupported_country_region_territory",
    "not-found": "not_found not_found_error model_not_found previous_response_not_found",
    "conflict": "conflict conflict_error aborted already_exists memory_path_conflict_error",
    "too-large": "request_too_large request_body_too_large_after_decoding payload_too_large",
    "rate": "rate_limit_exceeded rate_limit_error too_many_requests ramp_limit_exceeded",
    "cancelled": "cancelled canceled client_closed_request",
    "bad-upstream-answer": "bad_upstream_answer bad_gateway truncated malformed empty too-large",
    "upstream-auth": "upstream_auth",
    "overloaded": "overloaded overloaded_error unavailable service_unavailable slow_down",
    "timeout": "timeout timeout_error deadline_exceeded request_timeout gateway_timeout",
}
SPECIFIC_CODES: dict[str, ErrorClass] = {
    word: found for found, words in _SPECIFIC.items() for word in words.split()
}
"""Words, in lower case, that tell the class whatever the status is."""

_GENERIC: dict[ErrorClass, str] = {
    "bad-request": "invalid_request_error invalid_request invalid_argument failed_precondition "
    "out_of_range bad_request invalid_prompt",
    "rate": "resource_exhausted",
    "server": "api_error server_error internal internal_error internal_server_error unknown "
    "data_loss model_error",
}
GENERIC_CODES: dict[str, ErrorClass] = {
    word: found for found, words in _GENERIC.items() for word in words.split()
}
"""Words that count only where no status was told: wires use them for several classes."""

_CLASS_OF_STATUS: dict[int, ErrorClass] = {
    401: "auth",
    402: "billing",
    403: "permission",
    404: "not-found",
    408: "timeout",
    409: "conflict",
    410: "not-found",
    413: "too-large",
    414: "too-large",
    429: "rate",
    431: "too-large",
    451: "permission",
    499: "cancelled",
    501: "unsupported",
    502: "bad-upstream-answer",
    503: "overloaded",
    504: "timeout",
    # what proxies say of the server behind them
    520: "bad-upstream-answer",
    521: "bad-upstream-answer",
    522: "timeout",
    523: "bad-upstream-answer",
    524: "timeout",
    525: "bad-upstream-answer",
    526: "bad-upstream-answer",
    529: "overloaded",
}
_CLASS_OF_HUNDRED: dict[int, ErrorClass] = {3: "bad-upstream-answer", 4: "bad-request", 5: "server"}

_CLASS_OF_KIND: dict[ErrorKind, ErrorClass] = {
    "truncated": "bad-upstream-answer",
    "malformed": "bad-upstream-answer",
    "empty": "bad-upstream-answer",
    "too-large": "bad-upstream-answer",  # its answer, not the client's request
    "timeout": "timeout",
    "cancelled": "cancelled",
}
"""Errors that we noticed ourselves. What upstreams report is told by its words."""

Code = str | int | None


def classify(status: int | None, *words: Code) -> ErrorClass:
    """Returns the class of an error: the first specific word decides, then the status, then a
    generic word. A number among the words is a status if it can be one.
    """
    texts = [word.lower() for word in words if isinstance(word, str)]
    numbers = [status, *(word for word in words if isinstance(word, int))]
    code = next((number for number in numbers if is_error_status(number)), None)
    for text in texts:
        if text in SPECIFIC_CODES:
            return SPECIFIC_CODES[text]
    if code is not None:
        return _CLASS_OF_STATUS.get(code) or _CLASS_OF_HUNDRED[code // 100]
    return next((GENERIC_CODES[text] for text in texts if text in GENERIC_CODES), "server")


def is_error_status(number: int | None) -> bool:
    """Whether this HTTP status says that something failed."""
    return number is not None and 300 <= number <= 599


def is_known_code(code: Code) -> bool:
    """Whether a code is a word that some wire has for a class: a detail is none."""
    return isinstance(code, str) and (
        code.lower() in SPECIFIC_CODES or code.lower() in GENERIC_CODES
    )


# What an error part carries beside code and status


class ErrorPartExtra(msgspec.Struct, frozen=True, omit_defaults=True):
    """`extra` of an error: what a wire tells that the error part has no field for."""

    fault: ErrorClass | None = None
    """The class, where code and status tell another."""

    type: str | None = None
    """The broader of two words, where a wire has two."""

    param: str | None = None
    """The field of the request that is at fault."""

    retry_after: float | str | None = None
    """Seconds; or a date, as the header may have it."""

    request_id: str | None = None
    error_code: str | None = None
    """A narrower word than the code."""

    details: Json = UNSET
    connected: bool | None = None
    """Whether there was a connection, where we noticed the error ourselves; None: we were told."""


_read_extra = msgspec.json.Decoder(ErrorPartExtra, strict=False).decode


def extra_of(error: ErrorPart | Failure) -> ErrorPartExtra:
    if isinstance(error, Failure) or not isinstance(error.extra, Raw):
        return ErrorPartExtra()
    try:
        return _read_extra(error.extra)
    except (ValueError, RecursionError):
        return ErrorPartExtra()


def class_of(error: ErrorPart | Failure) -> ErrorClass:
    """Returns the class of any error part, whether an upstream told it or we did."""
    extra = extra_of(error)
    if extra.fault is not None:
        return extra.fault
    return _CLASS_OF_KIND.get(error.kind) or classify(error.status, extra.error_code, error.code)


def new_error(
    found: ErrorClass,
    message: str,
    *,
    param: str | None = None,
    retry_after: float | None = None,
    kind: ErrorKind = "internal",
) -> ErrorPart:
    """Returns an error of our own making, such as a request that cannot be mapped."""
    row = CLASSES[found]
    extra = ErrorPartExtra(param=param, retry_after=retry_after)
    return ErrorPart(
        kind,
        truncate_message(message),
        row.code,
        row.status,
        row.retryable,
        extra=_encode_extra(extra),
    )


def upstream_auth(error: ErrorPart) -> ErrorPart:
    """Returns the error that a client is told when the upstream refused our own key: its own key
    is fine, so it must not see 401.
    """
    row = CLASSES["upstream-auth"]
    kept = ErrorPartExtra(request_id=extra_of(error).request_id)
    return ErrorPart(
        error.kind, error.message, row.code, row.status, row.retryable, extra=_encode_extra(kept)
    )


def error_headers(error: ErrorPart) -> dict[str, str]:
    """Returns the headers that belong to an error: when to try again, or that it is no use.

    Official clients retry by status alone; the second header tells a spent quota from a rate.
    """
    again = error.retryable or CLASSES[class_of(error)].retryable
    found = {} if again else {"x-should-retry": "false"}
    wait = extra_of(error).retry_after
    if isinstance(wait, str):
        found["retry-after"] = wait
    elif wait is not None:
        found["retry-after"] = str(math.ceil(wait))
    return found


def status_of(error: ErrorPart | Failure, found: ErrorClass, usual: int) -> int:
    """Returns the HTTP status to write: the wire's usual one for the class, but faults of a
    request that have no class of their own keep theirs (405, 422 …).
    """
    told = error.status
    plain = told is not None and told // 100 == 4 and told not in _CLASS_OF_STATUS
    return told if told is not None and plain and found == "bad-request" else usual


def code_of(
    error: ErrorPart | Failure, status: int, type: str, own: frozenset[str], found: ErrorClass
) -> str | None:
    """Returns the code for a wire that has codes beside its types: the one that came, if it is a
    detail or among the wire's own, and hides nothing; else the word for the class.
    """
    code = error.kind if error.code is None else error.code
    if isinstance(code, str) and (code in own or (error.code and not is_known_code(code))):
        return code if classify(status, code, type) == found else CLASSES[found].code
    return CLASSES[found].code


# Reading a body

MAX_MESSAGE = 2000
"""Characters of a message: a whole page may have been sent in place of one."""

_CONTEXT_TOO_LONG = re.compile(
    r"context (length|window|size|limit)|(prompt|input) is too long|"
    r"maximum number of (input )?tokens",
    re.IGNORECASE,
)
"""Some wires have no word for a prompt over the model's limit; it is in the message only."""

_ERROR_KEYS = ("error", "fault", "errors")
"""Where an object may hold the error, or the list of them."""

_HTML = re.compile(r"\s*<(!doctype|html|head|body|title|center|h1|\?xml)", re.IGNORECASE)
_TITLE = re.compile(r"<title[^>]*>(.*?)</title", re.IGNORECASE | re.DOTALL)
_TAGS = re.compile(r"<(script|style)\b.*?</\1\s*>|<[^>]*>", re.IGNORECASE | re.DOTALL)
_MESSAGE_KEYS = (
    "message", "Message", "msg", "detail", "error_description", "description", "errorMessage",
    "faultstring", "title", "reason", "error",
)  # fmt: skip
_SECONDS = re.compile(r"\s*(\d{1,9}(?:\.\d{1,9})?)\s*s?\s*")
_DATE = re.compile(r"[A-Za-z]{3}, [\x20-\x7e]{1,60}")


class ParsedError(msgspec.Struct, frozen=True):
    """What a body says, in whatever shape: fields that it does not have are None."""

    message: str | None = None
    code: str | int | None = None
    type: str | None = None
    word: str | None = None
    """`status`, where it is a word."""

    status: int | None = None
    param: str | None = None
    request_id: str | None = None
    details: Json = UNSET
    rest: str | None = None
    """All of it, as text, for where it has no message."""


def parse_error_body(body: bytes) -> ParsedError:
    """Returns what an error body says. Anything is read: objects of any wire, lists around
    them, what frameworks and proxies send, a page, an event, plain text, nothing.
    """
    text = body.decode("utf-8", "replace").removeprefix("\ufeff").strip()
    try:
        return _parse_error(_parse_json(text))
    except RecursionError:
        return ParsedError(message=text[:MAX_MESSAGE])


def _parse_error(value: object) -> ParsedError:
    while isinstance(value, list) and value:
        value = value[0]
    if isinstance(value, str):
        return ParsedError(message=_plain_text(value))
    outer = value if isinstance(value, dict) else {}
    nested = next((outer[key] for key in _ERROR_KEYS if outer.get(key)), None)
    nested = nested[0] if isinstance(nested, list) else nested
    return _parse_fields(nested if isinstance(nested, dict) else {}, outer, nested)


def _parse_fields(
    inner: dict[str, object], outer: dict[str, object], nested: object
) -> ParsedError:
    def first(key: str) -> object:
        return inner.get(key) if inner.get(key) is not None else outer.get(key)

    type = inner.get("type") or (outer.get("type") if outer.get("type") != "error" else None)
    status, details = first("status"), inner.get("details")
    numbers = map(_parse_status, (status, inner.get("code"), first("status_code"), first("code")))
    return ParsedError(
        message=next((said for one in (nested, outer) if (said := _find_message(one))), None),
        code=_parse_code(first("code")),
        type=_nonempty(type),
        word=_nonempty(status),
        status=next((number for number in numbers if number is not None), None),
        param=_nonempty(first("param")) or _validation_path(outer.get("detail")),
        request_id=_nonempty(first("request_id")),
        details=Raw(msgspec.json.encode(details)) if details else UNSET,
        rest=json.dumps(outer, ensure_ascii=False) if outer else None,
    )


def _parse_json(text: str) -> object:
    """The JSON of a body, or the body; an event's JSON where a body is an event."""
    try:
        return mended(json.loads(text, strict=False))
    except (ValueError, RecursionError):
        pass
    lines = [line.removeprefix("data:") for line in text.splitlines() if line.startswith("data:")]
    return _parse_json("\n".join(lines).strip()) if lines else text


def _plain_text(text: str) -> str | None:
    """A text as a message; of a page its title, else what it says."""
    if _HTML.match(text):
        text = text[: 10 * MAX_MESSAGE]
        title = _TITLE.search(text)
        text = _TAGS.sub(" ", title[1] if title else text)
        text = " ".join(html.unescape(text).split())
    return text or None


def _find_message(value: object) -> str | None:
    """The message of an object; of a list of complaints, all of them."""
    if isinstance(value, str):
        return _plain_text(value)
    if isinstance(value, list):
        return "; ".join(one for one in map(_validation_message, value[:10]) if one) or None
    if isinstance(value, dict):
        return next(
            (said for key in _MESSAGE_KEYS if (said := _find_message(value.get(key)))), None
        )
    return None


def _validation_message(value: object) -> str | None:
    said, path = _find_message(value), _validation_path([value])
    return f"{path}: {said}" if said and path else said


def _validation_path(detail: object) -> str | None:
    """The field that the first complaint of a list is about."""
    first = detail[0] if isinstance(detail, list) and detail else None
    place = first.get("loc") if isinstance(first, dict) else None
    names = [str(name) for name in place if name != "body"] if isinstance(place, list) else []
    return ".".join(names) or None


def _parse_code(value: object) -> str | int | None:
    if isinstance(value, bool) or value in (None, ""):
        return None
    return value if isinstance(value, str | int) else json.dumps(value)


def _nonempty(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _parse_status(value: object) -> int | None:
    if isinstance(value, str) and len(value) == 3 and value.isascii() and value.isdigit():
        value = int(value)
    return value if isinstance(value, int) and is_error_status(value) else None


def truncate_message(message: str) -> str:
    """Returns the message, no longer than a message should be."""
    return message if len(message) <= MAX_MESSAGE else message[: MAX_MESSAGE - 1] + "…"


def parse_retry_after(text: str | None) -> float | str | None:
    """Returns the seconds of a Retry-After header or of a duration ("12s"), or the header's date
    as it is; None for anything else.
    """
    if text is None:
        return None
    found = _SECONDS.fullmatch(text)
    if found is not None:
        return float(found[1])
    return text.strip() if _DATE.fullmatch(text.strip()) else None


class ErrorReader(Protocol):
    """Reads an error body of a wire, with the HTTP status and the Retry-After header beside it."""

    def __call__(
        self, status: int | None, body: bytes, retry_after: str | None = None
    ) -> ErrorPart: ...


def build_error(
    status: int | None, said: ParsedError, code: Code, extra: ErrorPartExtra, *words: Code
) -> ErrorPart:
    """Returns the error part of what a body said: `code` is the wire's own word for it, `words`
    what else tells the class.
    """
    status = status if is_error_status(status) else said.status
    message = truncate_message(
        whole_characters(said.message or _fallback_message(said, status, code))
    )
    found = classify(status, *words, code)
    if found in ("bad-request", "too-large") and _CONTEXT_TOO_LONG.search(message):
        found = "context-too-long"
    if found != classify(status, code):
        extra = msgspec.structs.replace(extra, fault=found)
    retryable = CLASSES[found].retryable
    return ErrorPart("upstream", message, code, status, retryable, extra=_encode_extra(extra))


def _fallback_message(said: ParsedError, status: int | None, code: Code) -> str:
    word = code if isinstance(code, str) else None
    silent = "unknown error" if status is None else f"status {status}, and not a word about it"
    return word or said.rest or silent


def _encode_extra(extra: ErrorPartExtra) -> Json:
    return UNSET if extra == ErrorPartExtra() else Raw(msgspec.json.encode(extra))
