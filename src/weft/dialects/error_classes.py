"""Classes of errors, common to all dialects.

An error travels as an error part: `code` is the wire's own code, `status` the HTTP status. From
these two `class_of` derives the class; where they say less than the body did, `extra` names it. A
dialect's `errors.py` has a type and status for each class, so an error that is read in one dialect
can be written in any other.
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
    """A class of errors: its HTTP status unless a wire has another, whether a retry may help, and
    its code on wires that have codes beside types (None: the status says as much).
    """

    status: int
    retryable: bool
    code: str | None


CLASSES: dict[ErrorClass, ErrorDefinition] = {
    # The client's fault: the same request fails again
    "bad-request": ErrorDefinition(400, False, None),
    "context-too-long": ErrorDefinition(400, False, "context_length_exceeded"),
    "unsupported": ErrorDefinition(400, False, "unsupported_parameter"),
    "auth": ErrorDefinition(401, False, "invalid_api_key"),
    "billing": ErrorDefinition(402, False, "insufficient_quota"),
    "permission": ErrorDefinition(403, False, "permission_denied"),
    "not-found": ErrorDefinition(404, False, "model_not_found"),
    # A second attempt may meet another state.
    "conflict": ErrorDefinition(409, True, "conflict"),
    "too-large": ErrorDefinition(413, False, "request_too_large"),
    # RFC 6585, section 4
    "rate": ErrorDefinition(429, True, "rate_limit_exceeded"),
    # Not registered: nginx and Google's APIs use it for a request that the client gave up.
    "cancelled": ErrorDefinition(499, False, "cancelled"),
    # The upstream's fault, or Weft's: a retry may help, unless Weft's key is wrong
    "server": ErrorDefinition(500, True, None),
    "bad-upstream-answer": ErrorDefinition(502, True, "bad_upstream_answer"),
    "upstream-auth": ErrorDefinition(502, False, "upstream_auth"),
    "overloaded": ErrorDefinition(503, True, "overloaded"),
    "timeout": ErrorDefinition(504, True, "timeout"),
}

_SPECIFIC: dict[ErrorClass, str] = {
    "context-too-long": "context_length_exceeded exceed_context_size_error",
    "unsupported": "unsupported_parameter unsupported_value unimplemented",
    # OpenAI, Google, Anthropic, Google's RPC codes, and proxies; the other rows are mixed alike.
    "auth": "invalid_api_key api_key_invalid authentication_error unauthenticated unauthorized",
    # They come with several statuses, 429 among them, as if waiting would help.
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
    # `overloaded_error` comes with 529, and `slow_down` with 503.
    "overloaded": "overloaded overloaded_error unavailable service_unavailable slow_down",
    "timeout": "timeout timeout_error deadline_exceeded request_timeout gateway_timeout",
}
SPECIFIC_CODES: dict[str, ErrorClass] = {
    word: found for found, words in _SPECIFIC.items() for word in words.split()
}
"""Codes, in lower case, that decide the class whatever the status is."""

_GENERIC: dict[ErrorClass, str] = {
    "bad-request": "invalid_request_error invalid_request invalid_argument failed_precondition "
    "out_of_range bad_request invalid_prompt",
    # Google's word both for a rate limit and for a spent quota.
    "rate": "resource_exhausted",
    "server": "api_error server_error internal internal_error internal_server_error unknown "
    "data_loss model_error",
}
GENERIC_CODES: dict[str, ErrorClass] = {
    word: found for found, words in _GENERIC.items() for word in words.split()
}
"""Codes that count only without a status: wires use them for several classes."""

_CLASS_OF_STATUS: dict[int, ErrorClass] = {
    # RFC 9110, section 15.5; 431 and 429 RFC 6585; 451 RFC 7725
    401: "auth",
    402: "billing",
    403: "permission",
    404: "not-found",
    408: "timeout",
    409: "conflict",
    # Such as a model that was retired.
    410: "not-found",
    413: "too-large",
    414: "too-large",
    429: "rate",
    431: "too-large",
    451: "permission",
    499: "cancelled",
    # RFC 9110, section 15.6
    501: "unsupported",
    502: "bad-upstream-answer",
    503: "overloaded",
    504: "timeout",
    # from proxies, about the server behind them
    520: "bad-upstream-answer",
    521: "bad-upstream-answer",
    522: "timeout",
    523: "bad-upstream-answer",
    524: "timeout",
    525: "bad-upstream-answer",
    526: "bad-upstream-answer",
    # Anthropic's, for itself
    529: "overloaded",
}
# A redirect is no answer of an API: a wrong base URL, or a login page before it.
_CLASS_OF_HUNDRED: dict[int, ErrorClass] = {3: "bad-upstream-answer", 4: "bad-request", 5: "server"}

_CLASS_OF_KIND: dict[ErrorKind, ErrorClass] = {
    "truncated": "bad-upstream-answer",
    "malformed": "bad-upstream-answer",
    "empty": "bad-upstream-answer",
    "too-large": "bad-upstream-answer",  # its answer, not the client's request
    "timeout": "timeout",
    "cancelled": "cancelled",
}
"""Errors that Weft detected. What an upstream reports is classified by its code."""

Code = str | int | None


def classify(status: int | None, *words: Code) -> ErrorClass:
    """Returns the class of an error: the first specific code decides, then the status, then a
    generic code. A number among the codes is a status if it can be one.
    """
    # Google writes its codes in capitals, proxies in any case.
    texts = [word.lower() for word in words if isinstance(word, str)]
    numbers = [status, *(word for word in words if isinstance(word, int))]
    # Routers put the HTTP status of the host behind them into `code`.
    code = next((number for number in numbers if is_error_status(number)), None)
    for text in texts:
        if text in SPECIFIC_CODES:
            return SPECIFIC_CODES[text]
    if code is not None:
        return _CLASS_OF_STATUS.get(code) or _CLASS_OF_HUNDRED[code // 100]
    return next((GENERIC_CODES[text] for text in texts if text in GENERIC_CODES), "server")


def is_error_status(number: int | None) -> bool:
    """Whether this is the HTTP status of an error."""
    return number is not None and 300 <= number <= 599


def is_known_code(code: Code) -> bool:
    """Whether a code names a class in some dialect."""
    return isinstance(code, str) and (
        code.lower() in SPECIFIC_CODES or code.lower() in GENERIC_CODES
    )


# The extra of an error part


class ErrorPartExtra(msgspec.Struct, frozen=True, omit_defaults=True):
    """`extra` of an error part: what it has no field for."""

    fault: ErrorClass | None = None
    """The class, if code and status mean another."""

    type: str | None = None
    """The type, on a wire that has types and codes."""

    param: str | None = None
    """The field of the request that is at fault."""

    retry_after: float | str | None = None
    """Seconds; or a date, which the header may have instead."""

    request_id: str | None = None
    error_code: str | None = None
    """A more specific code."""

    details: Json = UNSET
    connected: bool | None = None
    """Whether there was a connection, if Weft detected the error; None if an upstream sent it."""


_read_extra = msgspec.json.Decoder(ErrorPartExtra, strict=False).decode


def extra_of(error: ErrorPart | Failure) -> ErrorPartExtra:
    if isinstance(error, Failure) or not isinstance(error.extra, Raw):
        return ErrorPartExtra()
    try:
        return _read_extra(error.extra)
    except (ValueError, RecursionError):
        return ErrorPartExtra()


def class_of(error: ErrorPart | Failure) -> ErrorClass:
    """Returns the class of any error, from an upstream or from Weft."""
    extra = extra_of(error)
    # Only set where code and status say something else, see `build_error`.
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
    """Returns an error of Weft itself, such as a request that cannot be converted."""
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
    """Returns the error for the client when the upstream rejected Weft's key: the client's own key
    is fine, so it must not see 401.
    """
    row = CLASSES["upstream-auth"]
    kept = ErrorPartExtra(request_id=extra_of(error).request_id)
    return ErrorPart(
        error.kind, error.message, row.code, row.status, row.retryable, extra=_encode_extra(kept)
    )


def error_headers(error: ErrorPart) -> dict[str, str]:
    """Returns the headers of an error: when to retry, or not to.

    Official clients retry by status alone; `x-should-retry` separates a spent quota from a rate
    limit.
    """
    # Official clients retry 408, 409, 429 and every 5xx unless this header tells them not to.
    again = error.retryable or CLASSES[class_of(error)].retryable
    found = {} if again else {"x-should-retry": "false"}
    wait = extra_of(error).retry_after
    if isinstance(wait, str):
        found["retry-after"] = wait
    elif wait is not None:
        # Whole seconds (RFC 9110, section 10.2.3), never fewer than were asked for.
        found["retry-after"] = str(math.ceil(wait))
    return found


def status_of(error: ErrorPart | Failure, found: ErrorClass, usual: int) -> int:
    """Returns the HTTP status to write: the usual one of the class, but a bad request keeps a
    status that has no class of its own (405, 422 …).
    """
    status = error.status
    if status is None or status // 100 != 4 or status in _CLASS_OF_STATUS:
        return usual
    return status if found == "bad-request" else usual


def code_of(
    error: ErrorPart | Failure, status: int, type: str, own: frozenset[str], found: ErrorClass
) -> str | None:
    """Returns the code for a wire that has codes beside types: the error's own, if that is one of
    the wire or names no class, and does not mean another class; else the code of the class.
    """
    code = error.kind if error.code is None else error.code
    if isinstance(code, str) and (code in own or (error.code and not is_known_code(code))):
        return code if classify(status, code, type) == found else CLASSES[found].code
    return CLASSES[found].code


# Error bodies

MAX_MESSAGE = 2000
"""Characters of a message, which may be a whole HTML page."""

_CONTEXT_TOO_LONG = re.compile(
    r"context (length|window|size|limit)|(prompt|input) is too long|"
    r"maximum number of (input )?tokens",
    re.IGNORECASE,
)
"""Some wires have no code for a prompt over the model's limit, only the message says it."""

_ERROR_KEYS = ("error", "fault", "errors")
"""Keys that may hold the error, or a list of errors."""

# Proxies and login pages answer with HTML, whatever the client accepts.
_HTML = re.compile(r"\s*<(!doctype|html|head|body|title|center|h1|\?xml)", re.IGNORECASE)
_TITLE = re.compile(r"<title[^>]*>(.*?)</title", re.IGNORECASE | re.DOTALL)
_TAGS = re.compile(r"<(script|style)\b.*?</\1\s*>|<[^>]*>", re.IGNORECASE | re.DOTALL)
_MESSAGE_KEYS = (
    # Of vendors, cloud gateways, web frameworks and RFC 9457 (`detail`, `title`), in this order.
    "message", "Message", "msg", "detail", "error_description", "description", "errorMessage",
    "faultstring", "title", "reason", "error",
)  # fmt: skip
# A header has whole seconds; Google's details have durations such as `12.5s`.
_SECONDS = re.compile(r"\s*(\d{1,9}(?:\.\d{1,9})?)\s*s?\s*")
# RFC 9110, section 5.6.7: the preferred format begins with the day, such as `Sun, `.
_DATE = re.compile(r"[A-Za-z]{3}, [\x20-\x7e]{1,60}")


class ParsedError(msgspec.Struct, frozen=True):
    """The fields of an error body, whatever its shape; those that it does not have are None."""

    message: str | None = None
    code: str | int | None = None
    type: str | None = None
    word: str | None = None
    """`status`, if it is not a number."""

    status: int | None = None
    param: str | None = None
    request_id: str | None = None
    details: Json = UNSET
    rest: str | None = None
    """The whole body as text, in case it has no message."""


def parse_error_body(body: bytes) -> ParsedError:
    """Returns the fields of an error body. Anything is parsed: objects of any dialect, lists of
    them, what frameworks and proxies send, an HTML page, an event, plain text, nothing.
    """
    # Some servers begin JSON with a byte order mark, which `json` rejects.
    text = body.decode("utf-8", "replace").removeprefix("\ufeff").strip()
    try:
        value = _parse_json(text)
        # Google's streaming endpoints answer with an array of one error.
        # capture: error-in-an-array
        while isinstance(value, list) and value:
            value = value[0]
        if isinstance(value, str):
            return ParsedError(message=_plain_text(value))
        return _parse_object(value if isinstance(value, dict) else {})
    except RecursionError:
        return ParsedError(message=text[:MAX_MESSAGE])


def _parse_object(outer: dict[str, object]) -> ParsedError:
    nested = next((outer[key] for key in _ERROR_KEYS if outer.get(key)), None)
    nested = nested[0] if isinstance(nested, list) else nested
    inner: dict[str, object] = nested if isinstance(nested, dict) else {}

    def first(key: str) -> object:
        return inner.get(key) if inner.get(key) is not None else outer.get(key)

    # Anthropic's outer type is always `error`.
    type = inner.get("type") or (outer.get("type") if outer.get("type") != "error" else None)
    status, code, details = first("status"), first("code"), inner.get("details")
    numbers = map(_parse_status, (status, inner.get("code"), first("status_code"), code))
    # In Python a bool is an integer.
    if isinstance(code, bool) or code in (None, ""):
        code = None
    return ParsedError(
        message=next((text for one in (nested, outer) if (text := _find_message(one))), None),
        code=code if code is None or isinstance(code, str | int) else json.dumps(code),
        type=_nonempty(type),
        word=_nonempty(status),
        status=next((number for number in numbers if number is not None), None),
        param=_nonempty(first("param")) or _validation_path(outer.get("detail")),
        request_id=_nonempty(first("request_id")),
        details=Raw(msgspec.json.encode(details)) if details else UNSET,
        rest=json.dumps(outer, ensure_ascii=False) if outer else None,
    )


def _parse_json(text: str) -> object:
    """The JSON value of a body, or of the event that it is; the text itself if it is not JSON."""
    try:
        return mended(json.loads(text, strict=False))
    except (ValueError, RecursionError):
        pass
    # A body may be an event: the server had begun to stream when it failed.
    lines = [line.removeprefix("data:") for line in text.splitlines() if line.startswith("data:")]
    return _parse_json("\n".join(lines).strip()) if lines else text


def _plain_text(text: str) -> str | None:
    """A text as a message; of an HTML page its title, or else its text."""
    if _HTML.match(text):
        # Bounded before the regular expressions see it.
        text = text[: 10 * MAX_MESSAGE]
        title = _TITLE.search(text)
        text = _TAGS.sub(" ", title[1] if title else text)
        text = " ".join(html.unescape(text).split())
    return text or None


def _find_message(value: object) -> str | None:
    """The message of an object; of a list of validation errors, all of them."""
    if isinstance(value, str):
        return _plain_text(value)
    if isinstance(value, list):
        # Frameworks list every field that does not fit.
        return "; ".join(one for one in map(_validation_message, value[:10]) if one) or None
    if isinstance(value, dict):
        return next(
            (found for key in _MESSAGE_KEYS if (found := _find_message(value.get(key)))), None
        )
    return None


def _validation_message(value: object) -> str | None:
    message, path = _find_message(value), _validation_path([value])
    return f"{path}: {message}" if message and path else message


def _validation_path(detail: object) -> str | None:
    """The field that the first validation error of a list is about."""
    first = detail[0] if isinstance(detail, list) and detail else None
    place = first.get("loc") if isinstance(first, dict) else None
    # Web frameworks begin the path with where the field was: the body, not a header.
    names = [str(name) for name in place if name != "body"] if isinstance(place, list) else []
    return ".".join(names) or None


def _nonempty(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _parse_status(value: object) -> int | None:
    # Some servers send the status as text.
    if isinstance(value, str) and len(value) == 3 and value.isascii() and value.isdigit():
        value = int(value)
    return value if isinstance(value, int) and is_error_status(value) else None


def truncate_message(message: str) -> str:
    """Returns the message, cut to `MAX_MESSAGE` characters."""
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
    """Parses an error body of a dialect, with its HTTP status and Retry-After header."""

    def __call__(
        self, status: int | None, body: bytes, retry_after: str | None = None
    ) -> ErrorPart: ...


def build_error(
    status: int | None, body: ParsedError, code: Code, extra: ErrorPartExtra, *codes: Code
) -> ErrorPart:
    """Returns the error part of a body: `code` is the wire's own code for it; `codes` are others
    that may tell the class.
    """
    # In a stream the HTTP status was 200; the body may know better.
    status = status if is_error_status(status) else body.status
    message = body.message or (code if isinstance(code, str) else None) or body.rest
    if not message:
        message = "unknown error" if status is None else f"HTTP {status} without a message"
    message = truncate_message(whole_characters(message))
    found = classify(status, *codes, code)
    # Agents compact the conversation on it: no other error calls for that.
    if found in ("bad-request", "too-large") and _CONTEXT_TOO_LONG.search(message):
        found = "context-too-long"
    # Readers of the part see only status and code: what they cannot derive is written down.
    if found != classify(status, code):
        extra = msgspec.structs.replace(extra, fault=found)
    retryable = CLASSES[found].retryable
    return ErrorPart("upstream", message, code, status, retryable, extra=_encode_extra(extra))


def _encode_extra(extra: ErrorPartExtra) -> Json:
    return UNSET if extra == ErrorPartExtra() else Raw(msgspec.json.encode(extra))
