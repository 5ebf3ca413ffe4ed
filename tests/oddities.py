"""What goes wrong in streams that were right: each oddity changes one thing of a list of events.

Most know no dialect. An oddity that finds nothing to change leaves the events as they are.
"""

import json
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from tests.framings import Told

Events = list[Told]
Oddity = Callable[[st.DrawFn, Events], Events]


def _place(draw: st.DrawFn, events: Events) -> int:
    return draw(st.integers(0, len(events) - 1))


def repeated(draw: st.DrawFn, events: Events) -> Events:
    """An event comes again, at once or later."""
    at = _place(draw, events)
    later = draw(st.integers(at + 1, len(events)))
    return [*events[:later], events[at], *events[later:]]


def dropped(draw: st.DrawFn, events: Events) -> Events:
    at = _place(draw, events)
    return events[:at] + events[at + 1 :]


def swapped(draw: st.DrawFn, events: Events) -> Events:
    at, other = _place(draw, events), _place(draw, events)
    out = list(events)
    out[at], out[other] = out[other], out[at]
    return out


def unended(draw: st.DrawFn, events: Events) -> Events:
    """The stream stops early."""
    return events[: draw(st.integers(1, len(events)))]


def twice(draw: st.DrawFn, events: Events) -> Events:
    """The last events come again: the finish, the usage, the terminator."""
    return events + events[-draw(st.integers(1, min(3, len(events)))) :]


def renamed(draw: st.DrawFn, events: Events) -> Events:
    at = _place(draw, events)
    name, data = events[at]
    value = _object(data)
    if "type" in value:
        data = _bytes({**value, "type": "nobody.knows"})
    return [*events[:at], ("nobody.knows" if name else name, data), *events[at + 1 :]]


def unnamed(draw: st.DrawFn, events: Events) -> Events:
    """No `event:` lines."""
    return [("", data) for _, data in events]


_STRANGE: tuple[Told, ...] = (
    ("ping", b'{"type":"ping"}'),
    ("", b'{"type":"nobody.knows","x":1}'),
    ("nobody.knows", b'{"x":1}'),
    ("", b"{}"),
    ("", b"{not json"),
    ("", b'"text"'),
    ("", b"[DONE]"),
    ("error", b'{"type":"error","error":{"type":"overloaded_error","message":"busy"}}'),
    ("", b'{"error":{"message":"busy","type":"server_error","code":"overloaded"}}'),
    ("", b'{"error":{"code":503,"message":"busy","status":"UNAVAILABLE"}}'),
    ("", b'{"x":"\xff"}'),
)


def strange(draw: st.DrawFn, events: Events) -> Events:
    """An event that belongs there in no stream: unknown, unreadable, an error, a terminator."""
    spare = draw(st.sampled_from(_STRANGE))
    # A ping is no oddity, but some clients want to hear of the response first.
    at = draw(st.integers(int(spare[0] == "ping"), len(events)))
    return [*events[:at], spare, *events[at:]]


_VALUES: tuple[object, ...] = (None, 7, 0, "", "x", [], {}, True, "look", '{"a":1}')


def changed(draw: st.DrawFn, events: Events) -> Events:
    """One value somewhere in an event is another one, or is missing."""
    at = _place(draw, events)
    name, data = events[at]
    value = _object(data)
    places = list(_places(value))
    if not places:
        return events
    holder, key = draw(st.sampled_from(places))
    if isinstance(holder, dict) and draw(st.booleans()):
        del holder[key]
    else:
        holder[key] = draw(st.sampled_from(_VALUES))
    return [*events[:at], (name, _bytes(value)), *events[at + 1 :]]


def other_choice(draw: st.DrawFn, events: Events) -> Events:
    """A second answer nobody asked for, before or after the first, or beside it."""
    at = _place(draw, events)
    name, data = events[at]
    value = _object(data)
    key = "choices" if "choices" in value else "candidates"
    if not value.get(key):
        return events
    other = [{**one, "index": 1} for one in value[key]]
    how = draw(st.integers(0, 2))
    if how == 2:
        both = draw(st.permutations([*value[key], *other]))
        return [*events[:at], (name, _bytes({**value, key: both})), *events[at + 1 :]]
    spare = (name, _bytes({**value, key: other}))
    return [*events[: at + how], spare, *events[at + how :]]


def late_name(draw: st.DrawFn, events: Events) -> Events:
    """A call of a chat stream gets its name, or its id, in a later event, or never."""
    out = list(events)
    field = draw(st.sampled_from(["name", "id"]))
    for at, (name, data) in enumerate(events):
        value = _object(data)
        for choice in value.get("choices") or []:
            for call in (choice.get("delta") or {}).get("tool_calls") or []:
                holder = call.get("function", call) if field == "name" else call
                if isinstance(holder, dict) and holder.get(field):
                    told = {"index": call.get("index", 0)}
                    late = {"function": {"name": holder[field]}} if field == "name" else {
                        "id": holder[field]
                    }  # fmt: skip
                    holder[field] = "" if draw(st.booleans()) else None
                    spare = {**value, "choices": [{"index": 0, "delta": {
                        "tool_calls": [{**told, **late}]}}]}  # fmt: skip
                    out[at] = (name, _bytes(value))
                    later = draw(st.integers(at + 1, len(out)))
                    if draw(st.booleans()):
                        out.insert(later, (name, _bytes(spare)))
                    return out
    return events


def whole_calls(draw: st.DrawFn, events: Events) -> Events:
    """A call comes whole in one chunk, as many hosts send it; text may stand beside it."""
    at = _place(draw, events)
    value = _object(events[at][1])
    if not value.get("choices"):
        return events
    arguments = draw(st.sampled_from(['{"x":1}', "{}", "", '{"a":1}', "{", "null"]))
    call = {
        "index": draw(st.integers(0, 1)),
        "id": draw(st.sampled_from(["call_x", "a", "", None])),
        "type": "function",
        "function": {"name": "look", "arguments": arguments},
    }
    delta: dict[str, object] = {"tool_calls": [call]}
    if draw(st.booleans()):
        delta["content"] = "Hm. "
    finish = draw(st.sampled_from([None, "stop", "tool_calls", "odd"]))
    chunk = {**value, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
    spare = ("", _bytes(chunk))
    return [*events[:at], *[spare] * draw(st.integers(1, 2)), *events[at:]]


def joined(draw: st.DrawFn, events: Events) -> Events:
    """Two events under one: their data lines are not apart."""
    at = _place(draw, events)
    if at + 1 == len(events):
        return events
    (name, data), (_, more) = events[at : at + 2]
    return [*events[:at], (name, data + b"\n" + more), *events[at + 2 :]]


ODDITIES: tuple[Oddity, ...] = (
    repeated,
    dropped,
    swapped,
    unended,
    twice,
    renamed,
    unnamed,
    strange,
    other_choice,
    late_name,
    whole_calls,
    joined,
)


@st.composite
def odd(draw: st.DrawFn, events: Events, kinds: tuple[Oddity, ...] = ODDITIES) -> Events:
    """The events with an oddity, or two."""
    for _ in range(draw(st.integers(1, 2))):
        if events:
            events = draw(st.sampled_from(kinds))(draw, events)
    return events


def _object(data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _bytes(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")


def _places(value: object) -> Any:
    """Every place in a JSON value where something stands."""
    keys: Any = ()
    if isinstance(value, dict):
        keys = list(value)
    elif isinstance(value, list):
        keys = range(len(value))
    for key in keys:
        yield value, key
        yield from _places(value[key])  # type: ignore[index]
