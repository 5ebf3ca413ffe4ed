"""The state of one choice while its stream is validated: its message, its calls and its end."""

from weft.dialects.openai_chat.wire import OFFICIAL_FINISH_REASONS
from weft.dialects.validation.reporter import JsonObject, Reporter, json_type
from weft.dialects.validation.untyped import count, elements, fields, parse_json, shown, text

CUT_REASONS = frozenset({"length", "content_filter"})
"""Finish reasons after which the arguments of a call may be incomplete."""

# Official are the first two; hosts send reasoning under one of the others.
TEXT_FIELDS = ("content", "refusal", "reasoning", "reasoning_content")
PARAMS_FIELDS = {"function": "arguments", "custom": "input"}
"""The types of calls, and the field of each that holds its params."""


class ChatCallState:
    """One tool call."""

    __slots__ = ("at", "id", "name", "params", "position", "type")

    def __init__(self, position: int, at: int, entry: JsonObject, name: str) -> None:
        self.position = position
        self.at = at
        self.id = text(entry.get("id"))
        self.type = text(entry.get("type"))
        self.name = name
        self.params: list[str] = []

    def __str__(self) -> str:
        return f"call {shown(self.id or self.position)}"


class ChatChoiceState:
    """One choice, from its first chunk to its end."""

    def __init__(self, report: Reporter, index: int) -> None:
        self._report = report
        self._index = index
        self._chunks = 0
        self._role_at: int | None = None
        self._finish_at: int | None = None
        self._fields: set[str] = set()
        """The fields of the message that were not empty."""
        self._calls: list[ChatCallState] = []
        # A host that gives index 0 to every call has several under one key.
        self._by_index: dict[int, ChatCallState] = {}
        """The newest call of each index."""
        self._by_id: dict[str, ChatCallState] = {}

    def __str__(self) -> str:
        return f"choice {shown(self._index)}"

    def feed(self, choice: JsonObject, *, has_usage: bool) -> None:
        """Checks one choice of one chunk; `has_usage` says that the chunk also holds usage."""
        if "message" in choice:
            detail = f"{self} has a message; expected a delta only"
            self._report("message-in-chunk", self, detail)
        if not isinstance(choice.get("delta"), dict):
            found = shown(choice["delta"]) if "delta" in choice else "nothing"
            detail = f"{self} has {found} as delta; expected an object, even if it is empty"
            self._report("delta-missing", self, detail)
        self._check_delta(fields(choice.get("delta")))
        logprobs = choice.get("logprobs")
        lists = [fields(logprobs).get(key) for key in ("content", "refusal")]
        arrays = all(one is None or isinstance(one, list) for one in lists)
        if logprobs is not None and not (isinstance(logprobs, dict) and arrays):
            detail = f"{self} has {shown(logprobs)} as logprobs"
            expected = "expected null, or an object whose content and refusal are arrays"
            self._report("logprobs-shape", self, f"{detail}; {expected}")
        reason = text(choice.get("finish_reason"))
        if reason:
            self._check_finish_reason(reason)
        elif not has_usage and self._chunks:
            # The first chunk may hold the role alone, and one with usage has no other purpose.
            delta = fields(choice.get("delta"))
            # Unknown keys count as content: a filter's verdict, a signature.
            values = [value for key, value in delta.items() if key != "role"]
            values += [value for key, value in choice.items() if key not in ("index", "delta")]
            if all(value in (None, "", [], {}) for value in values):
                detail = f"{self} has an empty delta; expected no such chunk"
                self._report("empty-delta", self, detail)
        self._chunks += 1

    def end(self, where: str) -> None:
        """Checks that the stream may end here; `where` names the end in the finding."""
        if self._finish_at is None:
            detail = f"{where} came, and {self} has no finish_reason; expected one before"
            self._report("finish-missing", self, detail)

    # The message

    def _check_delta(self, delta: JsonObject) -> None:
        role = text(delta.get("role"))
        if not self._chunks and not role:
            detail = f"the first delta of {self} has role {shown(delta.get('role'))}"
            self._report("role-missing", self, f'{detail}; expected "assistant"')
        if role and self._role_at is not None:
            detail = f"{self} has role {shown(role)} again; it came at event {self._role_at}"
            self._report("role-repeated", self, f"{detail}; expected it once")
        elif role:
            self._role_at = self._report.at
        for key in TEXT_FIELDS:
            value = delta.get(key)
            # Empty values announce nothing: hosts send all keys in every chunk.
            if value is None or value == "":
                continue
            if not isinstance(value, str):
                detail = f"{self} has {shown(value)} as {key}; expected text or null"
                self._report("content-type", (self, key), f"{detail}, not {json_type(value)}")
            self._fields.add(key)
            self._check_not_finished(key)
        if text(delta.get("reasoning")) and text(delta.get("reasoning_content")):
            found = f"{self} has reasoning and reasoning_content in one delta"
            self._report("reasoning-twice", self, f"{found}; expected one of them")
        if {"content", "refusal"} <= self._fields:
            detail = f"{self} has content and a refusal; expected one of them"
            self._report("refusal-and-content", self, detail)
        if delta.get("function_call"):
            detail = f"{self} has a function_call; expected tool_calls"
            self._report("function-call-legacy", self, detail)
            self._fields.add("function_call")
        for entry in map(fields, elements(delta.get("tool_calls"))):
            self._check_not_finished("a tool call")
            self._check_call(entry)

    def _check_not_finished(self, what: str) -> None:
        if self._finish_at is not None:
            detail = f"{what} of {self} came after its finish_reason at event {self._finish_at}"
            self._report("after-finish", self, f"{detail}; expected nothing more")

    # Calls

    def _check_call(self, entry: JsonObject) -> None:
        """Checks one entry of `tool_calls`: a new call, or a delta of one."""
        index = count(entry.get("index"))
        id = text(entry.get("id"))
        function, custom = fields(entry.get("function")), fields(entry.get("custom"))
        name = text(function.get("name")) or text(custom.get("name"))
        if index is None:
            detail = f"an entry of tool_calls has index {shown(entry.get('index'))}"
            self._report("call-index-missing", self, f"{detail}; expected 0, 1, …")
        # By index; without one by id; without both it is the last call.
        call = self._by_index.get(index) if index is not None else self._by_id.get(id)
        if call is None and index is None and self._calls and not id:
            call = self._calls[-1]
        if call is None:
            call = self._start_call(entry, index, name)
        elif id and call.id and id != call.id and name:
            # The official stream starts a call with an id and a name; a new id alone comes from
            # hosts that change it with every delta.
            detail = f"call {shown(id)} has index {shown(index)}, as {call} since event {call.at}"
            self._report("call-index-reused", self, f"{detail}; expected an index of its own")
            call = self._start_call(entry, index, name)
        else:
            self._continue_call(call, id, name)
        # Both are read whatever the type is: an entry may lack its type.
        for type, key in PARAMS_FIELDS.items():
            piece = fields(entry.get(type)).get(key)
            if isinstance(piece, str):
                call.params.append(piece)
            elif piece is not None:
                detail = f"{call} has {shown(piece)} as {key}; expected text"
                self._report("call-arguments-type", call, detail)

    def _start_call(self, entry: JsonObject, index: int | None, name: str) -> ChatCallState:
        call = ChatCallState(len(self._calls), self._report.at, entry, name)
        where = f"the first delta of {call}"
        # Client helpers use the index as a position in a list.
        if index is not None and index not in self._by_index and index != len(self._by_index):
            detail = f"{where} has index {shown(index)}; expected {len(self._by_index)}"
            self._report("call-index-order", self, detail)
        if not call.id:
            detail = f"{where} has id {shown(entry.get('id'))}; expected its id"
            self._report("call-id-missing", call, detail)
        elif call.id in self._by_id:
            at = self._by_id[call.id].at
            detail = f"{where} has the id of the call at event {at}; expected another one"
            self._report("call-id-shared", call, detail)
        if not name:
            self._report("call-nameless", call, f"{where} has no name; expected its name")
        if call.type not in PARAMS_FIELDS:
            detail = f"{where} has type {shown(entry.get('type'))}; expected function or custom"
            self._report("call-type-missing", call, detail)
        self._calls.append(call)
        if index is not None:
            self._by_index[index] = call
        self._by_id[call.id] = call
        return call

    def _continue_call(self, call: ChatCallState, id: str, name: str) -> None:
        where = f"a later delta of {call}"
        if id and id == call.id:
            detail = f"{where} has its id again; expected it only at event {call.at}"
            self._report("call-id-repeated", call, detail)
        elif id and call.id:
            detail = f"{where} has id {shown(id)}; expected none, or {shown(call.id)}"
            self._report("call-id-changed", call, detail)
        if name and call.name:
            detail = f"{where} has name {shown(name)}; expected {shown(call.name)} only at event "
            self._report("call-name-repeated", call, f"{detail}{call.at}")
        # Later deltas are compared with the first value.
        call.id = call.id or id
        call.name = call.name or name

    # The end

    def _check_finish_reason(self, reason: str) -> None:
        if self._finish_at is not None:
            detail = f"{self} has finish_reason {shown(reason)} again; it came at event "
            self._report("finish-repeated", self, f"{detail}{self._finish_at}; expected it once")
            return
        self._finish_at = self._report.at
        if reason not in OFFICIAL_FINISH_REASONS:
            detail = f"{self} has finish_reason {shown(reason)}; expected stop, length, "
            self._report("finish-unknown", self, f"{detail}tool_calls or content_filter")
        # The deprecated `function_call` is a call, too.
        if reason == "tool_calls" and not self._calls and "function_call" not in self._fields:
            detail = f"{self} has finish_reason tool_calls, and no call came; expected stop"
            self._report("finish-without-calls", self, detail)
        if reason == "stop" and self._calls:
            count = len(self._calls)
            calls = "a call" if count == 1 else f"{count} calls"
            detail = f"{self} has finish_reason stop after {calls}"
            self._report("stop-with-calls", self, f"{detail}; expected tool_calls")
        for call in self._calls:
            # Free text is not JSON, and a cut call cannot be complete.
            if call.type == "custom" or reason in CUT_REASONS:
                continue
            params = "".join(call.params)
            try:
                parse_json(params)
            except ValueError:
                detail = f"arguments of {call} are {shown(params)}; expected JSON"
                self._report("call-arguments-invalid", call, detail)
