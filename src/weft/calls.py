"""The ledger: which delta belongs to which tool call.

Wires disagree about what identifies a call: an index, an id, a name, a position, or nothing.
One procedure answers for all of them. For each entry of a chunk:

1. *Candidate*: by id, else by index, else by what the entry lacks (`_candidate`).
2. *New?* Only an entry with a name can start a new call where a candidate exists (`_is_new`).
3. *Update*: the first id and name stay; arguments are appended, or recognised as a repetition,
   a placeholder or a snapshot (`_take_arguments`).
4. *Announce* once there is a name and argument text, so that a late id is still in time; and
   in order of appearance (`_announce_in_order`).
5. *Close* only at the end, never because the text happens to parse. Nameless calls are never
   announced: they end as a lone, invalid tool-call.

"Finished" (a whole JSON object or array, so nothing legitimate can follow) and "viable" (could
still become JSON) are evaluated lazily, and each scan resumes where the last one stopped.
"""

from collections.abc import Sequence
from enum import Enum

import msgspec
from msgspec import UNSET

from weft.assembler import Buffer
from weft.findings import Code, Findings
from weft.ids import Claims, Ids
from weft.lifecycle import Hold
from weft.partial_json import Scan, canonical, join_halves, parse, whole_characters
from weft.parts import (
    Json,
    ParamsFormat,
    Part,
    ToolCall,
    ToolParamsDelta,
    ToolParamsEnd,
    ToolParamsStart,
)


class CallDelta(msgspec.Struct, frozen=True):
    """One entry of a chunk, normalised: empty strings are None, arguments are text."""

    index: int | None = None
    id: str | None = None
    name: str | None = None
    arguments: str = ""
    kind: str = "function"
    format: ParamsFormat = "json"
    signature: str | None = None
    extra: Json = UNSET

    @property
    def is_empty(self) -> bool:
        filled = self.id or self.name or self.arguments or self.signature
        return not filled and self.extra is UNSET


class _By(Enum):
    """How the candidate was found."""

    ID = "id"
    INDEX = "index"
    CONTEXT = "context"


class _LedgerCall:
    """One call being read."""

    __slots__ = (
        "_hold", "_scan", "_scanned", "_spelled", "announced", "buffer", "empty", "extra",
        "format", "half", "held", "id", "index", "kind", "name", "ordinal", "sent", "signature",
        "snapshots",
    )  # fmt: skip

    def __init__(self, entry: CallDelta, ordinal: int) -> None:
        self.ordinal = ordinal
        self.id: str | None = entry.id
        self.index = entry.index
        self.name: str | None = None
        self.kind = entry.kind
        self.format = entry.format
        self.signature: str | None = None
        self.extra: Json = UNSET
        self.announced: str | None = None
        """The one id it was announced under."""
        self.buffer = Buffer()
        self.sent = 0
        """How many characters of the buffer went out."""
        self.half = ""
        self.snapshots = False
        """It has sent all its arguments anew before."""
        self._scan = Scan()
        self._scanned = 0
        self._hold = Hold()
        self.held = False
        self.empty = True
        """No argument text yet, but for blanks."""
        self._spelled: tuple[int, bytes | None] = (0, None)

    def add(self, piece: str) -> None:
        self.buffer.add(piece)
        self.empty = self.empty and not piece.strip()
        if not self.sent:
            self.held = self._hold.feed(piece)

    def scan(self) -> Scan:
        if self._scanned != self.buffer.length:
            self._scan.feed(self.buffer.since(self._scanned))
            self._scanned = self.buffer.length
        return self._scan

    @property
    def finished(self) -> bool:
        if self.format == "text" or not self.buffer.ends_like_json():
            return False
        return self.scan().finished

    @property
    def growing(self) -> bool:
        """Has arguments, and more must follow."""
        return self.format == "json" and self.buffer.length > 0 and not self.finished

    @property
    def waits(self) -> bool:
        """Whether something of it has not come out."""
        unsent = self.sent < self.buffer.length or self.half
        signed = self.signature is not None or self.extra is not UNSET
        return bool(self.announced is None or unsent or signed)

    def replace(self, text: str) -> None:
        """Only what was not yet sent may change: `text` begins with all that was."""
        self.buffer.set(text)
        self.empty = not text.strip()
        self._scan, self._scanned, self._hold = Scan(), 0, Hold()
        self._spelled = (0, None)
        self.held = self._hold.feed(text)

    def equals(self, piece: str) -> bool:
        """Whether the piece is this call's arguments again, perhaps encoded once more."""
        if self._spelled[0] != self.buffer.length:
            self._spelled = (self.buffer.length, canonical(self.buffer.text))
        mine = self._spelled[1]
        if mine is None:
            return False
        if mine == canonical(piece):
            return True
        try:
            inner = parse(piece)
        except ValueError:
            return False
        return isinstance(inner, str) and mine == canonical(inner)


class Ledger:
    """Follows the calls of one response. `feed` takes all entries of one chunk together."""

    def __init__(
        self, ids: Ids, findings: Findings, declared: frozenset[str] = frozenset()
    ) -> None:
        self._ids = ids
        self._findings = findings
        self._declared = declared
        self._calls: list[_LedgerCall] = []
        self._by_id: dict[str, _LedgerCall] = {}
        self._by_index: dict[int, _LedgerCall] = {}
        self._last: _LedgerCall | None = None
        self._group: list[_LedgerCall | None] = []
        self._claims = Claims()
        self._first = 0
        """The first call that is not announced."""
        self._named = 0
        """The first call that has no name: names come to stay, so no call is looked at twice."""
        self._filled = 0
        """The call behind the last one before that which has arguments."""
        self._waiting: set[int] = set()
        """The calls, by ordinal, of which something has not come out."""

    @property
    def holding(self) -> bool:
        """Whether something of the entries so far has not come out: a call that is not announced,
        argument text, or what comes out only with the tool-call."""
        return bool(self._waiting)

    def __len__(self) -> int:
        """How many calls were begun."""
        return len(self._calls)

    def feed(self, entries: Sequence[CallDelta]) -> list[Part]:
        """Returns the parts that these entries complete: announcements and params deltas."""
        out: list[Part] = []
        several = len(entries) > 1
        group: list[_LedgerCall | None] = []
        for position, entry in enumerate(entries):
            call = None
            if not entry.is_empty:
                call = self._apply(entry, position if several else None)
                self._release(call, out)
                self._last = call
            elif entry.index not in self._by_index:
                # An entry with a type and nothing else, from a server that announces a call it
                # never makes.
                # capture: phantom-entry
                self._findings.once("call-empty", "", "an entry that says nothing of any call")
            group.append(call)
        if several:
            self._group = group
        return out

    def extend(self, piece: str, data: bytes = b"") -> bool:
        """Appends a delta to the call of the last one, which had no name: what `feed` would do with
        it. Returns False, and does nothing, if `feed` might do anything else."""
        call = self._last
        if call is None or call.announced is None or call.half or call.sent < call.buffer.length:
            return False
        if call.finished or len(piece) >= call.buffer.length:  # it may repeat what came before
            return False
        call.add(piece)
        call.sent = call.buffer.length
        return True

    def sign(self, signature: str | None, extra: Json) -> None:
        """Takes in what came beside the calls and belongs to the last one."""
        if self._last is not None:
            self._last.signature = signature or self._last.signature
            self._last.extra = extra
            self._update_waiting(self._last)

    def finish(self, *, failed: bool = False) -> list[Part]:
        """Returns the ends of all calls, in order of appearance. A second time: nothing.

        The tool-call of a call that was announced has no params of its own: they are what its
        deltas add up to, and the guard knows that.
        """
        out: list[Part] = []
        calls, self._calls = self._calls, []
        self._by_id, self._by_index, self._last, self._group = {}, {}, None, []
        self._first = self._named = self._filled = 0
        self._waiting.clear()
        for call in calls:
            if call.half:
                call.add(whole_characters(call.half))
            self._close(call, failed, out)
        return out

    # The numbers are those of the steps in the docstring.
    # Step 1

    def _candidate(self, entry: CallDelta, position: int | None) -> tuple[_LedgerCall | None, _By]:
        # An id is the stronger key: an index may move on while the call stays the same, and one
        # index may serve several calls.
        # capture: index-drifts
        if entry.id is not None and entry.id in self._by_id:
            return self._by_id[entry.id], _By.ID
        if entry.index is not None:
            if entry.index in self._by_index:
                return self._by_index[entry.index], _By.INDEX
            # A new index: a new call or, with arguments alone, one that began without an index.
            # capture: index-only-on-continuations
            return self._at_ordinal(entry), _By.CONTEXT
        last = self._last
        if entry.id is not None:
            # A new id without a name: a server that mints an id for each fragment. A call needs a
            # name, so this is no new one, unless the last one is complete.
            # capture: id-differs-on-later-fragments-no-index
            alone = entry.name is None and last is not None and not last.finished
            return (last if alone else None), _By.CONTEXT
        if entry.name is not None:
            # The name on each fragment, and nothing else: the same name goes on while its JSON is
            # open.
            # capture: no-index-no-id-by-name
            return (last if self._continues(last, entry.name) else None), _By.CONTEXT
        if position is not None and position < len(self._group):
            # Arguments alone, in a chunk with several entries: the same places as in the last such
            # chunk.
            # capture: no-index-parallel-by-position
            return self._group[position] or last, _By.CONTEXT
        # Arguments alone: the call that was touched last.
        # capture: fragments-without-any-key, fragment-for-the-last-touched-call
        return last, _By.CONTEXT

    def _at_ordinal(self, entry: CallDelta) -> _LedgerCall | None:
        """An index never seen, with arguments only: the call at that place, if it has none."""
        index = entry.index or 0
        if entry.id is None and entry.name is None and 0 <= index < len(self._calls):
            call = self._calls[index]
            return call if call.index is None else None
        return None

    @staticmethod
    def _continues(last: _LedgerCall | None, name: str) -> bool:
        if last is None:
            return False
        return last.name is None or (last.name == name and last.growing)

    # Step 2

    def _is_new(self, call: _LedgerCall, entry: CallDelta, by: _By) -> bool:
        if entry.name is None or call.name is None:
            return False
        same_name = entry.name == call.name
        if by is _By.INDEX and entry.id and call.id and entry.id != call.id:
            # Every call under index 0, told apart by its id. But the same name while the arguments
            # are incomplete is one call whose id changes with each fragment.
            # capture: index-zero-distinct-ids, id-and-same-name-differ-while-growing
            return not (same_name and call.growing)
        if same_name:
            # The same name once more is a repetition, unless it brings another value. Equal values
            # are one call: running a tool twice is worse than running it once.
            # capture: index-zero-no-ids, one-id-two-indexes-same-name
            moved = None not in (entry.index, call.index) and entry.index != call.index
            return (entry.id is None or moved) and self._brings_another(call, entry.arguments)
        if call.finished or (call.format == "text" and not call.empty):
            # Another name behind complete arguments is another call, whatever id or index it has.
            # capture: one-id-for-two-calls, index-zero-no-ids-other-name
            return True
        if call.empty and call.announced is None:
            # Two names before any arguments: pieces of one name, or two calls without arguments.
            # The declared tools decide, if they are known.
            # capture: second-name-is-a-declared-tool, declared-tools-and-a-name-in-pieces
            joined_is_known = call.name + entry.name in self._declared
            return entry.name in self._declared and not joined_is_known
        return False

    @staticmethod
    def _brings_another(call: _LedgerCall, piece: str) -> bool:
        """Whether arguments that are complete are followed by another JSON value."""
        if not piece.strip() or not call.finished or call.equals(piece):
            return False
        return _viable(piece)

    # Step 3

    def _apply(self, entry: CallDelta, position: int | None) -> _LedgerCall:
        if entry.name == "null" and any(call.name for call in self._calls):
            # A gateway that prints a missing name. The first call of all may really have this name.
            # capture: name-is-the-word-null
            self._findings.once("call-name-contradicted", "null", "a call named null: no name")
            entry = msgspec.structs.replace(entry, name=None)
        call, by = self._candidate(entry, position)
        if call is not None and self._is_new(call, entry, by):
            if by is _By.INDEX:
                self._note("call-index-reused", call, f"index {entry.index} begins another call")
            call = None
        if call is None:
            call = self._open(entry)
        else:
            self._take_identity(call, entry, by)
            self._take_name(call, entry.name)
        if entry.index is not None:
            self._by_index[entry.index] = call
            if call.index is None:
                call.index = entry.index
        call.signature = entry.signature or call.signature
        call.extra = call.extra if entry.extra is UNSET else entry.extra
        if entry.arguments:
            self._take_arguments(call, entry.arguments)
        return call

    def _open(self, entry: CallDelta) -> _LedgerCall:
        call = _LedgerCall(entry, len(self._calls))
        call.name = entry.name
        self._calls.append(call)
        if entry.id is not None:
            if entry.id in self._by_id:
                self._note("call-id-collision", call, "its id belongs to another call already")
            self._by_id[entry.id] = call
        if entry.index is None or entry.index < 0:
            self._note("call-index-missing", call, "no index")
        elif entry.index != call.ordinal and entry.index not in self._by_index:
            # The upstream's block number, or counting from 1: a key, not a place in a list.
            # capture: index-with-gaps
            self._note("call-index-unordered", call, f"number {call.ordinal} has another index")
        return call

    def _take_identity(self, call: _LedgerCall, entry: CallDelta, by: _By) -> None:
        if entry.index is None:
            self._note("call-index-missing", call, "a later delta has no index")
        if entry.id is not None:
            if entry.id == call.id:
                # Clients that take each id for a new call make hundreds of one.
                # capture: id-in-every-chunk
                self._note("call-id-repeated", call, "its id comes again with a later delta")
            elif call.id is None and call.announced is None:
                call.id = entry.id
                self._note("call-id-late", call, "its id came after its first delta")
            elif by is not _By.ID:
                # The first id is announced or will be; a second id is only remembered, to find the
                # call by.
                # capture: id-differs-on-later-fragments
                self._note("call-id-changed", call, f"a later delta says id {entry.id!r}")
            self._by_id[entry.id] = call
        if by is _By.ID and None not in (entry.index, call.index) and entry.index != call.index:
            # capture: index-drifts
            detail = f"began at index {call.index}, goes on at {entry.index}"
            self._note("call-index-drifted", call, detail)

    def _take_name(self, call: _LedgerCall, name: str | None) -> None:
        if name is None:
            return
        if call.name is None:
            # Arguments that came first wait in the buffer, and go out as one delta.
            # capture: name-after-arguments
            self._note("call-name-late", call, f"{name!r} came after its first delta")
            call.name = name
        elif name == call.name:
            # capture: name-on-every-delta
            self._note("call-name-repeated", call, "its name comes again with a later delta")
        elif call.empty and call.announced is None:
            # Only while there is no argument text. A piece that begins with the name so far repeats
            # it.
            # capture: name-in-pieces, name-grows
            call.name = name if name.startswith(call.name) else call.name + name
            self._note("call-name-joined", call, f"its name came in pieces: {call.name!r}")
        else:
            # capture: other-name-after-arguments-began
            self._note("call-name-contradicted", call, f"{name!r} after {call.name!r}: ignored")

    def _take_arguments(self, call: _LedgerCall, piece: str) -> None:
        if call.half or not piece.isascii():
            piece, call.half = join_halves(call.half, piece)
            if call.half:
                # capture: surrogate-pair-in-reasoning-and-arguments
                self._note("surrogate-lone", call, "a character of its arguments was cut in two")
        if call.format == "text" or not call.buffer.length:
            call.add(piece)
        elif call.finished:
            self._after_finished(call, piece)
        elif len(piece) >= call.buffer.length and self._is_snapshot(call, piece):
            call.replace(piece)
            call.snapshots = True
            # Only the text behind the old buffer is still unsent.
            # capture: arguments-grow-as-snapshots
            self._note("arguments-snapshot", call, "each delta repeats all arguments so far")
        else:
            call.add(piece)

    def _after_finished(self, call: _LedgerCall, piece: str) -> None:
        """Arguments are complete: what follows is a repetition, a correction, or an error."""
        if not piece.strip():
            return
        if call.equals(piece):
            # capture: arguments-sent-again, arguments-sent-again-encoded-twice
            self._note("arguments-repeated", call, "complete arguments came again")
            return
        placeholder = call.buffer.text.strip() in ("{}", "[]")
        scan = Scan()
        scan.feed(piece)
        # Neither a correction nor arguments behind a placeholder. Appended, it makes the arguments
        # invalid, and so the call: which half was meant is unknown.
        # capture: value-after-complete-arguments
        if not (scan.finished or (placeholder and scan.viable)):
            call.add(piece)
        elif call.sent:
            # capture: arguments-contradict-what-was-streamed
            self._note("whole-contradicts", call, "other arguments came after complete ones")
        elif placeholder:
            call.replace(piece)
            # capture: arguments-placeholder-first
            self._note("arguments-placeholder", call, "an empty value stood before the arguments")
        else:
            call.replace(piece)
            # capture: arguments-whole-sent-anew
            self._note("arguments-snapshot", call, "complete arguments were sent anew")

    @staticmethod
    def _is_snapshot(call: _LedgerCall, piece: str) -> bool:
        """Whether the piece repeats the buffer and goes on. Until a call has shown that it sends
        snapshots, appending has precedence as long as it could be JSON: nested objects look alike.
        """
        if not piece.startswith(call.buffer.text):
            return False
        if call.snapshots:
            return _viable(piece)
        # `{"not":` and again `{"not":` may be nesting; `{` and then `{"a"` cannot be.
        # capture: arguments-snapshot-or-nesting
        ahead = call.scan().fork()
        ahead.feed(piece)
        return not ahead.viable and _viable(piece)

    # Step 4

    def _release(self, call: _LedgerCall, out: list[Part]) -> None:
        """Sends what may be sent. Nothing that may yet be replaced goes out."""
        if call.announced is not None:
            if call.sent < call.buffer.length:
                self._let_flow(call, out)
        # Its name may be what the calls behind it were waiting for.
        elif call.name is not None and (call.buffer.length or call.ordinal == self._first):
            self._announce_in_order(call, out)
        self._update_waiting(call)

    def _announce_in_order(self, changed: _LedgerCall, out: list[Part]) -> None:
        """Announces all calls that have a name and arguments, and those with a name that stand
        before one. A call without a name lets none behind it pass: order is what clients see.
        """
        calls = self._calls
        while self._named < len(calls) and calls[self._named].name is not None:
            self._named += 1
            if calls[self._named - 1].buffer.length:
                self._filled = self._named
        if changed.buffer.length and changed.ordinal < self._named:
            self._filled = max(self._filled, changed.ordinal + 1)
        ready = calls[self._first : self._filled]
        self._first += len(ready)
        for call in ready:
            self._announce(call, out)
            if call.buffer.length:
                self._let_flow(call, out)
            self._update_waiting(call)

    def _update_waiting(self, call: _LedgerCall) -> None:
        if call.waits:
            self._waiting.add(call.ordinal)
        else:
            self._waiting.discard(call.ordinal)

    def _let_flow(self, call: _LedgerCall, out: list[Part]) -> None:
        # Arguments that are complete at once are held to the end: they may be a placeholder, or be
        # sent anew, and only what was not sent can be replaced.
        # capture: arguments-placeholder-first, arguments-whole-sent-anew
        held = not call.sent and call.format == "json" and (call.held or call.finished)
        if not held:
            self._send(call, out)

    def _announce(self, call: _LedgerCall, out: list[Part]) -> None:
        id = self._public_id(call)
        out.append(ToolParamsStart(id, call.name or "", kind=call.kind, format=call.format))

    def _public_id(self, call: _LedgerCall) -> str:
        if call.announced is None:
            if call.id is None:
                self._note("call-id-minted", call, "the wire gave it no id")
            call.announced = self._claims.claim(call.id or self._ids.mint("call"))
        return call.announced

    def _send(self, call: _LedgerCall, out: list[Part]) -> None:
        unsent = call.buffer.since(call.sent)
        call.sent = call.buffer.length
        out.append(ToolParamsDelta(self._public_id(call), unsent))

    # Step 5

    def _close(self, call: _LedgerCall, failed: bool, out: list[Part]) -> None:
        if call.name is None:
            # Without id and arguments, nothing was said that could be lost.
            # capture: phantom-entry-with-id, phantom-arguments
            if call.id or not call.empty:
                self._note("call-nameless", call, "it never got a name")
                out.append(self._tool_call(call, failed))
            return
        if call.announced is None and not failed:
            self._announce(call, out)
        if call.announced is not None:
            if call.sent < call.buffer.length:
                self._send(call, out)
            out.append(ToolParamsEnd(call.announced))
        out.append(self._tool_call(call, failed))

    def _tool_call(self, call: _LedgerCall, failed: bool) -> ToolCall:
        return ToolCall(
            self._public_id(call),
            call.name or "",
            "" if call.sent else call.buffer.text,
            kind=call.kind,
            format=call.format,
            invalid="stream-failed" if failed else None if call.name else "nameless",
            signature=call.signature,
            extra=call.extra,
        )

    def _note(self, code: Code, call: _LedgerCall, detail: str) -> None:
        named = call.id or call.name
        place = repr(named) if named else f"at index {call.index}"
        self._findings.once(code, str(call.ordinal), f"call {place}: {detail}")


def _viable(piece: str) -> bool:
    scan = Scan()
    scan.feed(piece)
    return scan.viable
