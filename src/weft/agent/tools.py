"""Python functions as tools: how they are declared, and how they are called.

The signature is the schema. A call has one answer whatever the function does: what it returns, or
the exception that it raises. Only time makes a call ambiguous, since a function that has not ended
may have had its effect. Nothing is repeated here: whether a call may be tried again is the decision
of the loop, by the retry class.
"""

import asyncio
import inspect
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from importlib import import_module
from typing import Any, Final, Literal, Protocol, TypeAlias, TypeVar, cast, overload

import msgspec

from weft.agent.tool_execution import Execution, Late, ToolThreads
from weft.agent.tool_schema import arguments_struct, json_schema
from weft.agent.tool_spec import (
    RETRY_CLASSES,
    TOOL_NAME,
    Ambiguous,
    AnyOutcome,
    Done,
    Finished,
    NotDone,
    RetryClass,
    ToolContent,
    ToolSpec,
    Unknown,
    definition_digest,
    failed,
)
from weft.errors import ArgumentTypeError, ArgumentValueError, ClientError, InternalError
from weft.request import FileContent, ImageContent, TextContent
from weft.store.queries import Queries

logger = logging.getLogger(__name__)

F = TypeVar("F", bound=Callable[..., object])
T = TypeVar("T")

Arguments: TypeAlias = msgspec.Struct | dict[str, object]
"""Decoded arguments: a struct with a field per parameter, or the object of an MCP call."""

Predicate: TypeAlias = Callable[[Any], bool]
Report: TypeAlias = Callable[[str], Awaitable[None]]

PROGRESS_TIMEOUT = 10.0
"""Seconds that a thread waits until its progress is written."""

THREADS: Final = ToolThreads(8)
"""For contexts that come without threads of their own."""

ATTRIBUTE = "__weft_tool__"
"""Where a decorated function has its tool."""


class BadArguments(ClientError):
    """The arguments of a call do not fit its schema. The message is for the model."""


class ToolContext:
    """What a tool knows of its call: its key, its deadline, and where progress is reported.

    A function receives it if its first parameter is annotated with this class; that parameter is
    not part of the schema.
    """

    __slots__ = ("_ended", "_loop", "_report", "attempt", "call", "deadline", "executor", "run")

    def __init__(
        self,
        run: str,
        call: str,
        *,
        attempt: int = 1,
        deadline: float | None = None,
        report: Report | None = None,
        executor: Executor = THREADS,
    ) -> None:
        self.run = run
        self.call = call
        self.attempt = attempt
        """Above 1 if an idempotent or pure call is executed again."""
        self.deadline = deadline
        """When the call must have ended, by `time.monotonic()`."""
        self.executor = executor
        """The threads for functions that are not async."""
        self._report = report
        # Known when the call begins: a context may be made where no loop runs.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended = False

    @property
    def key(self) -> str:
        """The name of the effect: the same for each attempt of this call, and for no other call."""
        return f"{self.run}/{self.call}"

    @property
    def remaining(self) -> float | None:
        """Seconds until the deadline, never negative; None if there is none."""
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())

    async def progress(self, value: object) -> None:
        """Reports a preliminary result: a text, or anything that can be written as JSON.

        It is shown and not relied upon, so a failure to write it is logged and does not disturb the
        tool. After the end of the call it does nothing.
        """
        if self._report is None or self._ended:
            return
        # Outside the try: a value that is not JSON is the tool's mistake, and it should know.
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        try:
            await self._report(_without_surrogates(text))
        except Exception:
            logger.exception("the progress of %s could not be written", self.key)

    def progress_sync(self, value: object, *, wait: float = PROGRESS_TIMEOUT) -> None:
        """`progress` for functions that are not async. Returns when it is written, or after `wait`
        seconds."""
        if self._loop is None or self._ended:
            return
        # The thread waits, so that it cannot report faster than reports are written.
        written = asyncio.run_coroutine_threadsafe(self.progress(value), self._loop)
        try:
            written.result(wait)
        except TimeoutError:
            written.cancel()
            logger.warning("the progress of %s was not written in time", self.key)

    def begin(self, limit: float | None = None) -> None:
        """The call begins, in the running event loop: threads report to it. It has `limit` seconds,
        if it is limited."""
        self._loop = asyncio.get_running_loop()
        if limit is not None:
            self.deadline = time.monotonic() + limit

    def end(self) -> None:
        """The call has its outcome: no preliminary result may follow, even if something is still
        running."""
        self._ended = True


class AgentTool(Protocol):
    """A tool that the loop can execute: a Python function, or a tool of an MCP server."""

    @property
    def spec(self) -> ToolSpec: ...

    def decode(self, arguments: str) -> Arguments:
        """Returns the arguments of a call. Raises BadArguments."""
        ...

    def needs_approval(self, arguments: Arguments) -> bool: ...

    def pinned(self, spec: ToolSpec) -> "AgentTool":
        """The tool as it is in this spec, if there is one; otherwise, as it is now."""
        ...

    async def call(self, arguments: Arguments, context: ToolContext) -> AnyOutcome:
        """Executes the call, at most once. Raises nothing of the tool's; cancellation passes
        through."""
        ...

    async def lookup(self, context: ToolContext) -> Finished | NotDone | Unknown:
        """Whether the call with the context's key was executed, and with which result."""
        ...


Lookup: TypeAlias = Callable[[ToolContext], object]
"""Returns Done, NotDone or None (unknown), or an awaitable of one."""


class PythonTool:
    """A Python function as a tool. `tool` makes one, `tool_of` returns it."""

    def __init__(
        self,
        function: Callable[..., object],
        *,
        name: str | None = None,
        description: str | None = None,
        retry: RetryClass | None = None,
        approval: Literal["never", "always"] | Predicate = "never",
        timeout: float | None = None,
        exclusive: str | None = None,
        lookup: Lookup | None = None,
    ) -> None:
        if not inspect.isroutine(function):
            raise ArgumentTypeError(f"a tool is a function, not {type(function).__name__}")
        name = function.__name__ if name is None else name
        if not TOOL_NAME.fullmatch(name):
            raise ArgumentValueError(
                f"{name!r} cannot be the name of a tool: it has 1 to 64 of a-z, A-Z, 0-9, _ and -"
            )
        if not (approval in ("never", "always") or callable(approval)):
            raise ArgumentValueError(
                f'tool {name}: approval is "never", "always" or a function, not {approval!r}'
            )
        if timeout is not None and not timeout > 0:
            raise ArgumentValueError(f"tool {name}: a timeout is positive, not {timeout!r}")
        self._function = function
        self._lookup = lookup
        self._predicate = approval if callable(approval) else None
        self._context_parameter, struct = arguments_struct(name, function, ToolContext)
        self._decoder, schema = json_schema(struct)
        retry = _retry_class(name, function, retry)
        if lookup is not None and retry != "once":
            raise ArgumentValueError(f'tool {name}: lookup is for retry="once", not {retry!r}')
        if timeout is not None and retry == "transactional":
            raise ArgumentValueError(
                f"tool {name}: a transactional tool has no timeout; the store's limits apply"
            )
        if description is None:
            description = " ".join((inspect.getdoc(function) or "").split("\n\n")[0].split())
        self.spec: ToolSpec = ToolSpec(
            name=name,
            description=description,
            parameters=schema,
            digest=definition_digest(name, description, schema, retry),
            retry=retry,
            has_lookup=lookup is not None,
            approval="predicate" if callable(approval) else approval,
            timeout=timeout,
            exclusive=exclusive,
        )

    def __repr__(self) -> str:
        return f"<tool {self.spec.name} of {self._function.__module__}>"

    def decode(self, arguments: str) -> msgspec.Struct:
        """Returns the arguments. Raises BadArguments, whose message names the path."""
        try:
            return self._decoder.decode(arguments)
        # UnicodeEncodeError: half of a surrogate pair, which JSON may escape but UTF-8 cannot hold.
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
            raise BadArguments(str(error)) from error

    def needs_approval(self, arguments: Arguments) -> bool:
        """Whether somebody must approve the call. A predicate that fails counts as yes."""
        if self._predicate is None:
            return self.spec.approval == "always"
        # A predicate with a bug must not wave a call through, nor stop the run.
        try:
            return bool(self._predicate(arguments))
        except Exception:
            logger.exception("tool %s: the predicate for approval failed", self.spec.name)
            return True

    def pinned(self, spec: ToolSpec) -> AgentTool:
        """The function itself: an earlier one is gone."""
        return self

    async def call(self, arguments: Arguments, context: ToolContext) -> Finished | Ambiguous:
        """Executes the function, within its timeout and the context's deadline. Raises only
        CancelledError, after the function has been cancelled too."""
        if self.spec.retry == "transactional":
            raise InternalError(f"tool {self.spec.name} is transactional: run its queries")
        execution = Execution(
            f"tool {self.spec.name}, call {context.key}",
            lambda: self._invoke(arguments, context),
            _answer,
            _raised,
        )
        outcome = await _execute(self._function, execution, context, self.spec.timeout)
        # Not begun means not executed, and that is an answer.
        if isinstance(outcome, Late):
            return Ambiguous(outcome.why) if outcome.begun else failed(outcome.why)
        return outcome

    async def lookup(self, context: ToolContext) -> Finished | NotDone | Unknown:
        """Asks the tool's lookup. A lookup that fails, or is late, does not know."""
        lookup = self._lookup
        if lookup is None:
            return Unknown("the tool has no lookup")
        execution = Execution(
            f"tool {self.spec.name}, lookup of {context.key}",
            lambda: lookup(context),
            _looked_up,
            lambda error: Unknown(_message(error)),
        )
        outcome = await _execute(lookup, execution, context, self.spec.timeout)
        return Unknown(outcome.why) if isinstance(outcome, Late) else outcome

    def queries(self, arguments: Arguments, context: ToolContext) -> Queries[Finished]:
        """The statements of a transactional tool, for one transaction with its receipt. If it
        raises, the transaction must undo what it wrote: see `Store.transact`."""
        # Called here, inside the generator: each attempt of the transaction starts over.
        statements = cast("Queries[object]", self._invoke(arguments, context))
        return _answer((yield from statements))

    def _invoke(self, arguments: Arguments, context: ToolContext) -> object:
        # Not recursive: the function gets the structs and dataclasses of its annotations.
        values = msgspec.structs.asdict(cast(msgspec.Struct, arguments))
        if self._context_parameter is not None:
            values[self._context_parameter] = context
        return self._function(**values)


async def _execute(
    function: Callable[..., object],
    execution: Execution[T],
    context: ToolContext,
    timeout: float | None,
) -> T | Late:
    limits = [limit for limit in (timeout, context.remaining) if limit is not None]
    limit = min(limits, default=None)
    context.begin(limit)
    try:
        if inspect.iscoroutinefunction(function):
            return await execution.run_task(limit)
        return await execution.run_thread(context.executor, limit)
    finally:
        context.end()


# Declaring


def _retry_class(
    name: str, function: Callable[..., object], retry: RetryClass | None
) -> RetryClass:
    """A generator function yields statements, and nothing else can be transactional."""
    if inspect.isasyncgenfunction(function):
        raise ArgumentTypeError(f"tool {name}: an async generator cannot be a tool")
    if retry is not None and retry not in RETRY_CLASSES:
        raise ArgumentValueError(
            f"tool {name}: retry is one of {', '.join(RETRY_CLASSES)}, not {retry!r}"
        )
    # Read from the code, so that a tool cannot claim a guarantee that it does not have.
    yields = inspect.isgeneratorfunction(function)
    if retry is None:
        return "transactional" if yields else "once"
    if yields != (retry == "transactional"):
        raise ArgumentValueError(
            f"tool {name}: a transactional tool is a generator function that yields statements"
        )
    return retry


@overload
def tool(function: F, /) -> F: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    retry: RetryClass | None = None,
    approval: Literal["never", "always"] | Predicate = "never",
    timeout: float | None = None,
    exclusive: str | None = None,
    lookup: Lookup | None = None,
) -> Callable[[F], F]: ...


def tool(function: Any = None, /, **options: Any) -> Any:
    """Declares a typed function as a tool. The function stays what it was.

    The schema comes from the signature (`Annotated[int, msgspec.Meta(le=14)]` and the like carry
    over), the description from the first paragraph of the docstring. `approval` is a function of
    the decoded arguments, or never or always; `lookup` is asked whether an earlier call with the
    context's key was executed. Raises ArgumentTypeError or ArgumentValueError for what cannot be a
    tool.
    """

    def declare(function: F) -> F:
        declared = PythonTool(function, **options)
        # The function itself is returned and only gets an attribute, so that whatever looks at it
        # (type checkers, `inspect`, other decorators) sees what was written.
        try:
            setattr(function, ATTRIBUTE, declared)
        # Bound methods and functions written in C have no room for it.
        except AttributeError:
            raise ArgumentTypeError(
                f"tool {declared.spec.name}: a {type(function).__name__} cannot be decorated; "
                "define a function that calls it"
            ) from None
        return function

    return declare if function is None else declare(function)


def tool_of(value: object) -> PythonTool:
    """Returns the tool of a decorated function. Raises ArgumentTypeError."""
    found = value if isinstance(value, PythonTool) else getattr(value, ATTRIBUTE, None)
    if not isinstance(found, PythonTool):
        kind = "a function without @weft.tool" if inspect.isroutine(value) else repr(type(value))
        raise ArgumentTypeError(f"expected a tool, got {kind}")
    return found


def load_tool(reference: str) -> PythonTool:
    """Returns the tool that a setting names, as in `shop.tools:refund`. Raises ArgumentValueError,
    also if the module cannot be imported.
    """
    module_name, separator, name = reference.partition(":")
    if not (separator and module_name and name):
        raise ArgumentValueError(f"{reference!r} does not name a tool: expected module:function")
    try:
        module = import_module(module_name)
    # A module runs any code when it is imported, also `sys.exit()`.
    except (Exception, SystemExit) as error:
        raise ArgumentValueError(
            f"{reference}: module {module_name!r} cannot be imported: {_message(error)}"
        ) from error
    tools = [
        key
        for key, value in vars(module).items()
        if isinstance(getattr(value, ATTRIBUTE, None), PythonTool)
    ]
    found = f"its tools are {', '.join(sorted(tools))}" if tools else "it has no tools"
    if not hasattr(module, name):
        raise ArgumentValueError(f"{reference}: module {module_name!r} has no {name!r}; {found}")
    try:
        return tool_of(getattr(module, name))
    except ArgumentTypeError as error:
        raise ArgumentValueError(f"{reference}: {error}; {found}") from error


# Results


def _answer(value: object) -> Finished:
    """What a tool returned, for the model."""
    if value is None:
        return Finished()
    if isinstance(value, str):
        return Finished((TextContent(_without_surrogates(value)),) if value else ())
    # An empty list is a result like any other, and not the absence of contents.
    contents = value if isinstance(value, list | tuple) and value else (value,)
    if all(isinstance(one, TextContent | ImageContent | FileContent) for one in contents):
        return Finished(tuple(cast("Sequence[ToolContent]", contents)))
    try:
        return Finished((TextContent(msgspec.json.encode(value).decode()),))
    except (TypeError, ValueError, RecursionError) as error:
        # The effect has happened: the model must not conclude that it should try again.
        return failed(
            f"the tool was executed, but its result of type {type(value).__name__} cannot be "
            f"written as JSON: {_message(error)}"
        )


def _raised(error: BaseException) -> Finished:
    return failed(_message(error))


def _message(error: BaseException) -> str:
    """Without a traceback: that is for the author of the tool, not for a model."""
    return _without_surrogates(f"{type(error).__name__}: {error}".removesuffix(": "))


def _looked_up(value: object) -> Finished | NotDone | Unknown:
    match value:
        case Done(result=result):
            return _answer(result)
        case NotDone() | Unknown():
            return value
        case None:
            return Unknown()
    return Unknown(f"lookup returned {type(value).__name__}, not Done, NotDone or None")


def _without_surrogates(text: str) -> str:
    """Halves of surrogate pairs cannot be stored or sent."""
    # Two halves that stand side by side become the character that they are.
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
