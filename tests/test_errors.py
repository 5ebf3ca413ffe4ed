"""Whose fault an exception is can be read from its class, and where it happened from its text."""

import pytest

from weft import errors
from weft.agent.mcp_config import McpUnavailable
from weft.agent.runtime import IllegalFork, KeyReused, UnknownAgent
from weft.agent.state import IllegalEvent
from weft.agent.tools import BadArguments
from weft.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    BadRequest,
    ClientError,
    InternalError,
    Refused,
    TooLarge,
    UnknownDialect,
    Unreadable,
    UpstreamError,
    WeftError,
)
from weft.gateway.settings import SettingsError
from weft.relay.routing import UnknownModel
from weft.store.base import AlreadyExists, NotFound, StoreError, UnknownStore
from weft.upstream.base import Busy, Unreachable

TREE = {
    WeftError: Exception,
    UpstreamError: WeftError,
    TooLarge: UpstreamError,
    Unreachable: UpstreamError,
    Busy: Unreachable,
    ClientError: WeftError,
    ArgumentTypeError: ClientError,
    ArgumentValueError: ClientError,
    UnknownDialect: ArgumentValueError,
    Unreadable: ClientError,
    UnknownModel: ClientError,
    SettingsError: ClientError,
    AlreadyExists: ClientError,
    NotFound: ClientError,
    UnknownStore: ClientError,
    BadArguments: ClientError,
    McpUnavailable: ClientError,
    IllegalEvent: ClientError,
    UnknownAgent: ClientError,
    KeyReused: ClientError,
    IllegalFork: ClientError,
    BadRequest: ClientError,
    Refused: BadRequest,
    InternalError: WeftError,
    StoreError: InternalError,
}


def drawn() -> list[str]:
    """The names in the tree of the module's docstring."""
    lines = (errors.__doc__ or "").split("\n\n")[1].splitlines()
    return [line.strip(" │├└─").split()[0] for line in lines]


@pytest.mark.parametrize(("error", "base"), list(TREE.items()), ids=lambda one: one.__name__)
def test_every_exception_hangs_where_the_tree_says(
    error: type[Exception], base: type[Exception]
) -> None:
    builtin: dict[type[Exception], tuple[type[Exception], ...]] = {
        ArgumentTypeError: (TypeError,),
        ArgumentValueError: (ValueError,),
    }
    assert error.__bases__ == (base, *builtin.get(error, ()))


def test_the_drawn_tree_holds_every_exception_there_is() -> None:
    made_here = [
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and value.__module__ == errors.__name__
    ]
    own = [error.__name__ for error in TREE if error.__module__ == errors.__name__]
    assert (drawn(), made_here) == ([error.__name__ for error in TREE], own)


def test_too_large_says_what_was_too_large_and_where() -> None:
    error = TooLarge("line", 8, offset=5, event=2)
    assert (str(error), error.offset, error.event) == (
        "line over 8 bytes at byte 5, event 2",
        5,
        2,
    )


@pytest.mark.parametrize(
    ("error", "place"),
    [(Unreadable("no stream"), (0, 0)), (Unreadable("no stream", offset=7, event=3), (7, 3))],
    ids=["nowhere", "somewhere"],
)
def test_unreadable_says_why_and_where(error: Unreadable, place: tuple[int, int]) -> None:
    assert (str(error), (error.offset, error.event)) == ("no stream", place)
