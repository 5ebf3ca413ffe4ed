"""What a tool is and what comes of a call, as values: they go into the log of a run.

A call has one of three outcomes. *Finished* is an answer for the model, also if it is an error: it
is known what happened. *Ambiguous* means that the effect may or may not have happened, because no
answer came in time. *Changed* means that nothing was sent: the tool is no longer the one that the
run was started with.
"""

import re
from hashlib import sha256
from typing import Literal

import msgspec
from msgspec import Raw

from weft.request import FileContent, ImageContent, TextContent

RetryClass = Literal["once", "idempotent", "pure", "transactional"]
"""What may be done when it is not known whether a call was executed.

once           nothing, unless `lookup` can tell: the effect must not happen twice
idempotent     call again with the same key: the effect of a key happens once
pure           call again: there is no effect
transactional  cannot be unknown: effect and receipt are one transaction of the store
"""

Approval = Literal["never", "always", "predicate"]
ToolKind = Literal["python", "mcp", "client", "agent"]

RETRY_CLASSES: tuple[RetryClass, ...] = ("once", "idempotent", "pure", "transactional")

TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""What every dialect accepts as the name of a function; OpenAI's rule is the narrowest."""


class ToolSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tool as it is in the snapshot of a run: all that can be known of it without its code."""

    name: str
    description: str = ""
    parameters: Raw = Raw(b'{"type":"object"}')
    """The JSON Schema of the arguments, an object at its top."""

    digest: str = ""
    """Of the definition: name, description, parameters, retry class."""

    retry: RetryClass = "once"
    has_lookup: bool = False
    approval: Approval = "never"
    timeout: float | None = None
    """Seconds for one call."""

    exclusive: str | None = None
    """Calls of tools with the same word here are executed one after the other."""

    kind: ToolKind = "python"
    server: str | None = None
    """The MCP server that executes it."""


def definition_digest(
    name: str, description: str, parameters: bytes | Raw, retry: RetryClass
) -> str:
    """A digest of what a model and an operator rely on; neither the order of keys in the schema nor
    blanks count."""
    # Encoded again with sorted keys: a server may list them in another order after each restart.
    schema = msgspec.json.decode(parameters)
    definition = msgspec.json.encode([name, description, schema, retry], order="deterministic")
    return sha256(definition).hexdigest()


ToolContent = TextContent | ImageContent | FileContent


class CallOutcome(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """The base of what comes of a call."""


class Finished(CallOutcome, frozen=True, tag="finished"):
    """An answer for the model."""

    content: tuple[ToolContent, ...] = ()
    is_error: bool = False

    @property
    def text(self) -> str:
        """Its texts, one per line."""
        return "\n".join(one.text for one in self.content if isinstance(one, TextContent))


class Ambiguous(CallOutcome, frozen=True, tag="ambiguous"):
    """The effect may have happened."""

    why: str


class Changed(CallOutcome, frozen=True, tag="changed"):
    """The call was not sent: the definition of the tool is not the one in the snapshot.

    Somebody has to approve `new`; a call under a spec with that digest is sent.
    """

    old: str
    new: ToolSpec


AnyOutcome = Finished | Ambiguous | Changed


def failed(message: str) -> Finished:
    """An answer that tells the model what went wrong."""
    return Finished((TextContent(message),), is_error=True)


class LookupAnswer(msgspec.Struct, frozen=True):
    """The base of what `lookup` says about an earlier call."""


class Done(LookupAnswer, frozen=True):
    """The earlier call was executed; `result` is what it returned, as a tool returns it."""

    result: object = None


class NotDone(LookupAnswer, frozen=True):
    """The earlier call was not executed, and never will be."""


class Unknown(LookupAnswer, frozen=True):
    """It cannot be found out."""

    why: str = ""
