"""Python functions as tools: what the schema says, and what comes of a call."""

import asyncio
import contextvars
import dataclasses
import enum
import inspect
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal, ParamSpec, TypeVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft
from tests import agent_shop
from tests.strategies import QUICK
from weft.agent.tool_execution import Execution, Late, ToolThreads
from weft.agent.tool_spec import (
    Ambiguous,
    AnyOutcome,
    Changed,
    Done,
    Finished,
    NotDone,
    ToolSpec,
    Unknown,
    definition_digest,
    failed,
)
from weft.agent.tools import BadArguments, PythonTool, ToolContext, load_tool, tool, tool_of
from weft.errors import ArgumentTypeError, ArgumentValueError, InternalError
from weft.request import FileContent, ImageContent, TextContent
from weft.store.queries import Query, Row

T = TypeVar("T")
P = ParamSpec("P")


class Size(enum.Enum):
    SMALL = "small"
    LARGE = "large"


class Address(msgspec.Struct):
    street: str
    city: str = "Bern"


@dataclasses.dataclass
class Customer:
    name: str
    address: Address | None = None


@tool
def order(
    context: ToolContext,
    item: Annotated[str, msgspec.Meta(description="What to buy.", min_length=1)],
    days: Annotated[int, msgspec.Meta(ge=1, le=14)] = 3,
    size: Size = Size.SMALL,
    way: Literal["post", "bike"] = "post",
    customer: Customer | None = None,
    tags: list[str] = ["new"],  # noqa: B006  each call must get its own
) -> str:
    """Order something
    for a customer.

    Nobody but the author reads this.
    """
    tags.append(context.key)
    return f"{item} {days} {size.value} {way} {customer} {tags}"


def finished(*texts: str) -> Finished:
    return Finished(tuple(map(TextContent, texts)))


def run(made: PythonTool, arguments: str = "{}", **context: Any) -> AnyOutcome:
    async def call() -> AnyOutcome:
        return await made.call(made.decode(arguments), ToolContext("run_1", "call_1", **context))

    return asyncio.run(call())


# Declaring


def test_the_signature_is_the_schema() -> None:
    address = {
        "title": "Address",
        "type": "object",
        "properties": {"street": {"type": "string"}, "city": {"type": "string", "default": "Bern"}},
        "required": ["street"],
    }
    customer = {
        "title": "Customer",
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "address": {"anyOf": [{"$ref": "#/$defs/Address"}, {"type": "null"}], "default": None},
        },
        "required": ["name"],
    }
    size = {"title": "Size", "enum": ["large", "small"]}
    spec = tool_of(order).spec
    assert (spec.name, spec.description) == ("order", "Order something for a customer.")
    assert json.loads(bytes(spec.parameters)) == {
        "type": "object",
        "properties": {
            "item": {"type": "string", "minLength": 1, "description": "What to buy."},
            "days": {"type": "integer", "minimum": 1, "maximum": 14, "default": 3},
            "size": {"$ref": "#/$defs/Size", "default": "small"},
            "way": {"enum": ["bike", "post"], "default": "post"},
            "customer": {
                "anyOf": [{"$ref": "#/$defs/Customer"}, {"type": "null"}],
                "default": None,
            },
            "tags": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["item"],
        "additionalProperties": False,
        "$defs": {"Address": address, "Customer": customer, "Size": size},
    }


def test_a_decorated_function_is_the_function_that_it_was() -> None:
    def plain(count: int) -> int:
        return count + 1

    declared = tool(plain)
    assert declared is plain
    assert declared(2) == 3
    assert agent_shop.refund("a", 10) == "a: 12.00"
    assert next(iter(inspect.signature(order).parameters)) == "context"
    assert weft.tool is tool
    assert repr(tool_of(order)) == "<tool order of tests.test_agent_tools>"


def test_options_are_in_the_spec() -> None:
    @tool(
        name="pay-out",
        description="Pay.",
        approval=lambda arguments: arguments.amount > 100,
        timeout=2.5,
        exclusive="till",
        lookup=lambda context: None,
    )
    async def pay(amount: int) -> None: ...

    spec = tool_of(pay).spec
    assert spec == ToolSpec(
        name="pay-out",
        description="Pay.",
        parameters=spec.parameters,
        digest=spec.digest,
        retry="once",
        has_lookup=True,
        approval="predicate",
        timeout=2.5,
        exclusive="till",
        kind="python",
    )
    assert msgspec.json.decode(msgspec.json.encode(spec), type=ToolSpec) == spec


def test_the_digest_is_that_of_the_definition() -> None:
    digest = definition_digest("a", "b", b'{"x": 1, "y": [2]}', "once")
    assert digest == definition_digest("a", "b", b'{"y":[2],"x":1}', "once")
    others = [
        definition_digest("A", "b", b'{"x": 1, "y": [2]}', "once"),
        definition_digest("a", "B", b'{"x": 1, "y": [2]}', "once"),
        definition_digest("a", "b", b'{"x": 1, "y": [3]}', "once"),
        definition_digest("a", "b", b'{"x": 1, "y": [2]}', "pure"),
    ]
    assert len({digest, *others}) == 5


def unannotated(item) -> None: ...  # type: ignore[no-untyped-def]
def many(*items: str) -> None: ...
def named(**items: str) -> None: ...
def positional(item: str, /) -> None: ...
def complicated(number: complex) -> None: ...
def called(back: Callable[[], None]) -> None: ...
def strange(item: str = object()) -> None: ...  # type: ignore[assignment]
def mixed(item: Address | Customer) -> None: ...
def unresolved(item: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821
def late_context(item: str, context: ToolContext) -> None: ...


async def streaming(item: str) -> Any:
    yield item


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (unannotated, "tool unannotated: parameter 'item' has no annotation"),
        (many, "tool many: parameter 'items' takes any number of values"),
        (named, "tool named: parameter 'items' takes values of any name"),
        (positional, "tool positional: parameter 'item' has no name for the caller"),
        (complicated, "parameter 'number': type <class 'complex'> is not supported"),
        (called, "tool called: parameter 'back': type <class 'collections.abc.Callable'>"),
        (strange, "parameter 'item': Encoding objects of type object is unsupported"),
        (mixed, "tool mixed: parameter 'item': Type unions may not contain more than one"),
        (unresolved, "tool unresolved: an annotation cannot be resolved: name 'Nowhere'"),
        (late_context, "tool late_context: parameter 'context': type .*ToolContext"),
        (streaming, "tool streaming: an async generator cannot be a tool"),
        (Address, "a tool is a function, not StructMeta"),
        ("shop:refund", "a tool is a function, not str"),
        (max, "tool max: no signature found"),
        (agent_shop.refund.__get__("a"), "tool refund: a method cannot be decorated"),
    ],
)
def test_what_cannot_be_a_tool_is_refused_where_it_is_declared(
    function: Callable[..., object], message: str
) -> None:
    with pytest.raises(ArgumentTypeError, match=message):
        tool(function)


@pytest.mark.parametrize("name", ["", "a.b", "a b", "ä", "x" * 65, "a\n"])
def test_a_name_that_a_model_api_would_refuse_is_refused(name: str) -> None:
    with pytest.raises(ArgumentValueError, match="cannot be the name of a tool"):
        tool(name=name)(agent_shop.price)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"retry": "twice"}, "retry is one of once, idempotent, pure, transactional, not 'twice'"),
        ({"retry": "transactional"}, "a transactional tool is a generator function"),
        ({"approval": "sometimes"}, "approval is"),
        ({"timeout": 0}, "a timeout is positive, not 0"),
        ({"timeout": float("nan")}, "a timeout is positive, not nan"),
        ({"retry": "pure", "lookup": print}, "lookup is for retry=\"once\", not 'pure'"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentValueError, match=message):
        PythonTool(agent_shop.price, **options)


def test_a_setting_names_a_tool() -> None:
    assert load_tool("tests.agent_shop:refund") is tool_of(agent_shop.refund)


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("tests.agent_shop", "does not name a tool: expected module:function"),
        (":refund", "does not name a tool"),
        ("tests.agent_shop:", "does not name a tool"),
        ("tests.no_such:refund", "ModuleNotFoundError: No module named 'tests.no_such'"),
        ("tests.agent_shop:refun", "has no 'refun'; its tools are refund"),
        ("tests.agent_shop:price", "got a function without @weft.tool; its tools are refund"),
        ("tests.agent_shop:TAX", "expected a tool, got <class 'float'>"),
        ("tests.raw_http:Client", "expected a tool, got <class 'type'>; it has no tools"),
    ],
)
def test_a_setting_that_names_no_tool_says_what_was_found(reference: str, message: str) -> None:
    with pytest.raises(ArgumentValueError, match=message):
        load_tool(reference)


@pytest.mark.parametrize("line", ["1 / 0", "raise SystemExit(3)"])
def test_a_module_that_fails_does_not_end_the_process(line: str, tmp_path: Path) -> None:
    (tmp_path / "failing.py").write_text(line)
    code = """
from weft.agent.tools import load_tool
from weft.errors import ArgumentValueError
try:
    load_tool("failing:refund")
except ArgumentValueError as error:
    print(error)
"""
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert re.search(r"cannot be imported: (ZeroDivision|SystemExit)", done.stdout)


# Arguments


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ('{"item":"tea","days":15}', "Expected `int` <= 14 - at `$.days`"),
        ('{"item":"tea","days":"3"}', "Expected `int`, got `str` - at `$.days`"),
        ('{"days":3}', "Object missing required field `item`"),
        ('{"item":"tea","colour":"red"}', "Object contains unknown field `colour`"),
        ('{"item":"tea","context":{}}', "Object contains unknown field `context`"),
        ('{"item":"tea","way":"car"}', "Invalid enum value 'car' - at `$.way`"),
        (
            '{"item":"tea","customer":{"name":"A","address":{"street":1}}}',
            "Expected `str`, got `int` - at `$.customer.address.street`",
        ),
        ("[]", "Expected `object`, got `array`"),
        ("", "Input data was truncated"),
        ('{"item":"tea"', "Input data was truncated"),
    ],
)
def test_bad_arguments_name_the_path(arguments: str, message: str) -> None:
    with pytest.raises(BadArguments) as caught:
        tool_of(order).decode(arguments)
    assert str(caught.value) == message


@QUICK
@given(st.text(st.characters(codec=None, exclude_categories=())))
def test_whatever_a_model_writes_is_arguments_or_bad_arguments(text: str) -> None:
    for arguments in (
        text,
        "[" * 100_000,
        f'{{"item":{json.dumps(text)}}}',
        f'{{"item":"{text}"}}',
    ):
        with suppress(BadArguments):
            assert isinstance(tool_of(order).decode(arguments), msgspec.Struct)


def test_a_function_gets_what_was_decoded_and_a_fresh_default() -> None:
    arguments = '{"item":"tea","size":"large","customer":{"name":"A","address":{"street":"b"}}}'
    expected = (
        "tea 3 large post Customer(name='A', address=Address(street='b', city='Bern')) "
        "['new', 'run_1/call_1']"
    )
    assert run(tool_of(order), arguments) == finished(expected)
    assert run(tool_of(order), arguments) == finished(expected)


def test_approval_is_never_always_or_decided_by_the_arguments() -> None:
    def pay(amount: int) -> None: ...

    def needed(approval: Any, amount: int) -> bool:
        made = PythonTool(pay, approval=approval)
        return made.needs_approval(made.decode(json.dumps({"amount": amount})))

    assert not needed("never", 1)
    assert needed("always", 1)
    assert not needed(lambda arguments: arguments.amount > 100, 100)
    assert needed(lambda arguments: arguments.amount > 100, 101)
    # One that fails must not wave a call through.
    assert needed(lambda arguments: arguments.amuont > 100, 1)


# Results

IMAGE = ImageContent("image/png", "aGk=")
FILE = FileContent("text/plain", "aGk=", filename="hi.txt")


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize(
    ("value", "outcome"),
    [
        ("done", finished("done")),
        ("", Finished()),
        (None, Finished()),
        ({"a": [1, None]}, finished('{"a":[1,null]}')),
        ([], finished("[]")),
        (0, finished("0")),
        (Address("x"), finished('{"street":"x","city":"Bern"}')),
        (IMAGE, Finished((IMAGE,))),
        ([TextContent("see"), IMAGE, FILE], Finished((TextContent("see"), IMAGE, FILE))),
        ((FILE,), Finished((FILE,))),
        ("\ud800x", finished("�x")),
    ],
)
def test_a_result_is_text_json_or_contents(
    value: object, outcome: Finished, is_async: bool
) -> None:
    def direct() -> object:
        return value

    async def awaited() -> object:
        await asyncio.sleep(0)
        return value

    assert run(PythonTool(awaited if is_async else direct)) == outcome


@pytest.mark.parametrize("value", [object(), {"a": object()}, [IMAGE, object()], ["\ud800"]])
def test_a_result_that_cannot_be_written_is_an_error_that_says_the_tool_ran(value: object) -> None:
    def strange() -> object:
        return value

    outcome = run(PythonTool(strange))
    assert isinstance(outcome, Finished)
    assert outcome.is_error
    assert outcome.text.startswith(
        f"the tool was executed, but its result of type {type(value).__name__} cannot be written"
    )


@QUICK
@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists))
def test_json_comes_back_as_the_value(value: object) -> None:
    def same() -> object:
        return value

    outcome = asyncio.run(_call(PythonTool(same)))
    if isinstance(value, str) or value is None:
        assert outcome == (finished(value) if value else Finished())
    else:
        assert msgspec.json.decode(outcome.text) == value


async def _call(made: PythonTool) -> Finished:
    outcome = await made.call(made.decode("{}"), ToolContext("run_1", "call_1"))
    assert isinstance(outcome, Finished)
    return outcome


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ValueError("no such order"), "ValueError: no such order"),
        (KeyError("a"), "KeyError: 'a'"),
        (TimeoutError(), "TimeoutError"),
        (SystemExit(2), "SystemExit: 2"),
        (asyncio.CancelledError(), "CancelledError"),
        (ValueError("\udc00"), "ValueError: �"),
    ],
)
def test_an_exception_is_an_answer(error: BaseException, message: str, is_async: bool) -> None:
    def direct() -> None:
        raise error

    async def awaited() -> None:
        await asyncio.sleep(0)
        raise error

    made = PythonTool(awaited if is_async else direct, timeout=30)
    assert run(made) == failed(message)


# Time


def test_an_async_tool_that_is_late_is_cancelled_and_ambiguous() -> None:
    ends = []

    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ends.append("cleaned up")

    why = "no answer within 0.01 s; the call was cancelled"
    assert run(PythonTool(slow, timeout=0.01)) == Ambiguous(why)
    assert ends == ["cleaned up"]


def test_the_deadline_of_the_context_counts_too() -> None:
    async def slow(context: ToolContext) -> None:
        assert context.remaining is not None
        assert 0 <= context.remaining <= 0.01
        await asyncio.Event().wait()

    made = PythonTool(slow, timeout=60)
    outcome = run(made, deadline=time.monotonic() + 0.01)
    assert isinstance(outcome, Ambiguous)
    assert ToolContext("run_1", "call_1").remaining is None


def test_what_a_cancelled_tool_raises_is_no_answer_but_what_it_returns_is() -> None:
    async def breaking() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ValueError("in the middle of it") from None

    async def finishing() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "paid"
        return "never"

    assert isinstance(run(PythonTool(breaking, timeout=0.01)), Ambiguous)
    assert run(PythonTool(finishing, timeout=0.01)) == finished("paid")


def test_a_timeout_inside_a_tool_is_its_own() -> None:
    async def impatient() -> None:
        async with asyncio.timeout(0.001):
            await asyncio.Event().wait()

    assert run(PythonTool(impatient, timeout=60)) == failed("TimeoutError")


@pytest.mark.parametrize("limit", [1, 3])
def test_threads_do_everything_once_and_no_more_at_a_time_than_allowed(limit: int) -> None:
    lock, running, most = threading.Lock(), 0, 0

    def work(number: int) -> int:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        names.add(threading.current_thread().ident)
        with lock:
            running -= 1
        if number == 7:
            raise LookupError("seven")
        return number

    names: set[int | None] = set()
    with ToolThreads(limit) as threads:
        done = [threads.submit(work, number) for number in range(50)]
    errors = [one.exception() is not None for one in done]
    assert [number for number, failed in enumerate(errors) if failed] == [7]
    assert [one.result() for one in done[8:]] == [*range(8, 50)]
    assert most <= limit
    assert len(names) <= limit
    with pytest.raises(RuntimeError):
        threads.submit(work, 1)


STUCK = """
import asyncio, threading
from weft.agent.tools import PythonTool, ToolContext
def stuck() -> None:
    threading.Event().wait()
async def main() -> None:
    tool = PythonTool(stuck, timeout=0.5)
    print(await tool.call(tool.decode("{}"), ToolContext("r", "c")))
asyncio.run(main())
"""


def test_a_thread_that_is_left_behind_does_not_hold_up_the_exit() -> None:
    done = subprocess.run(
        [sys.executable, "-c", STUCK], capture_output=True, text=True, timeout=60, check=True
    )
    assert "cannot be stopped" in done.stdout


@pytest.fixture
def threads() -> Iterator[ToolThreads]:
    with ToolThreads(1) as executor:
        yield executor


class BegunThreads(ToolThreads):
    """The time of a call begins when its thread has begun it, however busy the machine is."""

    def submit(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> "Future[T]":
        begun = threading.Event()

        def begin() -> T:
            begun.set()
            return function(*args, **kwargs)

        job = super().submit(begin)
        assert begun.wait(60)
        return job


def test_a_thread_that_is_late_is_left_behind_and_ambiguous(
    caplog: pytest.LogCaptureFixture,
) -> None:
    release = threading.Event()

    def stuck() -> None:
        release.wait(30)

    with BegunThreads(1) as threads:
        outcome = run(PythonTool(stuck, timeout=0.05), executor=threads)
        release.set()
    assert outcome == Ambiguous("no answer within 0.05 s; its thread cannot be stopped")
    behind, ended = [record.getMessage() for record in caplog.records]
    assert (
        behind == "tool stuck, call run_1/call_1: its thread cannot be stopped and is left behind"
    )
    assert ended.startswith("tool stuck, call run_1/call_1: the thread that was left behind ended")


def test_a_call_that_no_thread_began_is_not_ambiguous_and_never_begins(
    threads: ToolThreads,
) -> None:
    release = threading.Event()
    threads.submit(release.wait, 30)
    called = []

    def pay() -> None:
        called.append(1)

    outcome = run(PythonTool(pay, timeout=0.01), executor=threads)
    assert outcome == failed("not begun within 0.01 s: all threads for tools are busy")
    release.set()
    threads.shutdown()
    assert called == []


def test_a_thread_sees_the_context_variables_of_the_caller(threads: ToolThreads) -> None:
    user = contextvars.ContextVar("user", default="nobody")

    def who() -> str:
        return user.get()

    user.set("alice")
    assert run(PythonTool(who), executor=threads) == finished("alice")


@pytest.mark.parametrize("is_async", [True, False])
def test_cancellation_passes_through(is_async: bool, threads: ToolThreads) -> None:
    release = threading.Event()
    ends = []

    async def call() -> None:
        begun = asyncio.Event()
        loop = asyncio.get_running_loop()

        def stuck() -> None:
            loop.call_soon_threadsafe(begun.set)
            release.wait(30)

        async def waiting() -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)
                ends.append("cleaned up")

        made = PythonTool(waiting if is_async else stuck)
        context = ToolContext("run_1", "call_1", executor=threads)
        task = asyncio.ensure_future(made.call(made.decode("{}"), context))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        # Now, and not when the event loop is closed.
        assert ends == (["cleaned up"] if is_async else [])

    asyncio.run(call())
    release.set()


def test_a_task_that_ignores_its_cancellation_is_left_behind(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def call() -> None:
        release = asyncio.Event()

        async def stubborn() -> None:
            while not release.is_set():
                with suppress(asyncio.CancelledError):
                    await release.wait()

        execution = Execution("stubborn", stubborn, str, str, grace=0.01)
        assert await execution.run_task(0.01) == Late(
            "no answer within 0.01 s; the call was cancelled", begun=True
        )
        release.set()

    asyncio.run(call())
    assert "stubborn: still running 0.01 s after it was cancelled; left behind" in caplog.text


# Progress


@pytest.mark.parametrize("is_async", [True, False])
def test_progress_is_reported_until_the_call_ends(is_async: bool) -> None:
    reported = []
    kept: list[ToolContext] = []

    async def report(text: str) -> None:
        await asyncio.sleep(0)
        reported.append(text)

    async def counting(context: ToolContext) -> None:
        kept.append(context)
        for value in ("half", {"done": 2}, "\ud800"):
            await context.progress(value)

    def counting_in_thread(context: ToolContext) -> None:
        kept.append(context)
        for value in ("half", {"done": 2}, "\ud800"):
            context.progress_sync(value)

    made = PythonTool(counting if is_async else counting_in_thread)

    async def call() -> None:
        context = ToolContext("run_1", "call_1", report=report)
        assert await made.call(made.decode("{}"), context) == Finished()
        await context.progress("too late")
        await asyncio.to_thread(context.progress_sync, "too late")

    asyncio.run(call())
    assert reported == ["half", '{"done":2}', "�"]
    assert [context.key for context in kept] == ["run_1/call_1"]


def test_progress_that_cannot_be_written_does_not_disturb_the_tool(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def report(text: str) -> None:
        raise OSError("disk full")

    async def working(context: ToolContext) -> str:
        await context.progress("half")
        return "done"

    assert run(PythonTool(working), report=report) == finished("done")
    assert "the progress of run_1/call_1 could not be written" in caplog.text


def test_a_thread_does_not_wait_for_its_progress_forever(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def report(text: str) -> None:
        await asyncio.Event().wait()

    def working(context: ToolContext) -> str:
        context.progress_sync("half", wait=0.01)
        return "done"

    assert run(PythonTool(working), report=report) == finished("done")
    assert "the progress of run_1/call_1 was not written in time" in caplog.text


# Lookup


def _raise(error: Exception) -> None:
    raise error


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (lambda: Done({"paid": 3}), finished('{"paid":3}')),
        (lambda: Done(), Finished()),
        (lambda: NotDone(), NotDone()),
        (lambda: None, Unknown()),
        (lambda: Unknown("the bank is closed"), Unknown("the bank is closed")),
        (lambda: True, Unknown("lookup returned bool, not Done, NotDone or None")),
        (lambda: _raise(OSError("no route")), Unknown("OSError: no route")),
    ],
)
@pytest.mark.parametrize("is_async", [True, False])
def test_lookup_says_whether_the_call_was_executed(
    answer: Callable[[], object], expected: object, is_async: bool
) -> None:
    keys = []

    def direct(context: ToolContext) -> object:
        keys.append(context.key)
        return answer()

    async def awaited(context: ToolContext) -> object:
        return direct(context)

    made = PythonTool(agent_shop.price, lookup=awaited if is_async else direct)
    assert asyncio.run(made.lookup(ToolContext("run_1", "call_1"))) == expected
    assert keys == ["run_1/call_1"]


def test_a_lookup_that_is_missing_or_late_does_not_know() -> None:
    async def slow(context: ToolContext) -> None:
        await asyncio.Event().wait()

    context = ToolContext("run_1", "call_1")
    assert asyncio.run(PythonTool(agent_shop.price).lookup(context)) == Unknown(
        "the tool has no lookup"
    )
    made = PythonTool(agent_shop.price, lookup=slow, timeout=0.01)
    assert asyncio.run(made.lookup(ToolContext("run_1", "call_1"))) == Unknown(
        "no answer within 0.01 s; the call was cancelled"
    )


# Transactional tools


@tool
def book(context: ToolContext, seat: int) -> Generator[Query, Sequence[Row], str]:
    """Book a seat."""
    yield "INSERT INTO seats (seat, booking) VALUES (?, ?)", (seat, context.key)
    rows = yield "SELECT count(*) FROM seats", ()
    if seat == 13:
        raise ValueError("nobody sits there")
    return f"{rows[0][0]!r} booked"


def test_a_generator_function_is_transactional() -> None:
    made = tool_of(book)
    assert made.spec.retry == "transactional"
    with pytest.raises(InternalError, match="tool book is transactional: run its queries"):
        asyncio.run(made.call(made.decode('{"seat":1}'), ToolContext("run_1", "call_1")))
    with pytest.raises(ArgumentValueError, match="a transactional tool has no timeout"):
        PythonTool(book, timeout=3)
    with pytest.raises(ArgumentValueError, match="a transactional tool is a generator function"):
        PythonTool(book, retry="once")


def test_a_transactional_tool_yields_statements_and_returns_its_answer() -> None:
    made = tool_of(book)
    statements = made.queries(made.decode('{"seat":1}'), ToolContext("run_1", "call_1"))
    insert = "INSERT INTO seats (seat, booking) VALUES (?, ?)"
    assert next(statements) == (insert, (1, "run_1/call_1"))
    assert statements.send([]) == ("SELECT count(*) FROM seats", ())
    with pytest.raises(StopIteration) as end:
        statements.send([(1,)])
    assert end.value.value == Finished((TextContent("1 booked"),))


def test_what_a_transactional_tool_raises_reaches_the_transaction() -> None:
    made = tool_of(book)
    statements = made.queries(made.decode('{"seat":13}'), ToolContext("run_1", "call_1"))
    next(statements)
    statements.send([])
    with pytest.raises(ValueError, match="nobody sits there"):
        statements.send([(1,)])


# Values


@pytest.mark.parametrize(
    "outcome",
    [
        Finished((TextContent("a"), IMAGE, FILE), is_error=True),
        Ambiguous("no answer"),
        Changed("old", tool_of(order).spec),
    ],
)
def test_outcomes_can_be_logged(outcome: AnyOutcome) -> None:
    assert msgspec.json.decode(msgspec.json.encode(outcome), type=AnyOutcome) == outcome
