"""`reasoning_details`: which of them belong to one reasoning, and the end of that reasoning."""

from collections.abc import Sequence

import msgspec
from msgspec import Raw

from weft.assembler import Buffer
from weft.dialects.envelope import unwrap_reasoning_end
from weft.dialects.openai_chat import wire
from weft.dialects.openai_chat.wire import ChatReasoningDetail
from weft.partial_json import whole_characters
from weft.parts import ReasoningEnd

_Key = tuple[str | None, int | None]
"""The type and the index of a detail."""


class ReasoningDetails(msgspec.Struct, eq=False):
    """The details of one reasoning, merged by type and index.

    A reasoning is signed when it is complete: by a signature, or by encrypted `data`. Until then
    every detail belongs to it, whatever its index: streams number all details of a response in one
    sequence, and those of one reasoning may have several numbers.
    """

    _details: dict[_Key, ChatReasoningDetail] = {}
    _texts: dict[_Key, Buffer] = {}
    signed: bool = False  # not a property: the decoder reads it for every delta of reasoning

    def __bool__(self) -> bool:
        """Whether there are details: they are emitted with the end of the reasoning."""
        return bool(self._details)

    def add(self, detail: ChatReasoningDetail) -> None:
        # capture: two-details-share-an-index, signature-in-a-detail-of-its-own
        # A text and an encrypted detail may share an index; a signature may come by itself.
        key = (detail.type, detail.index)
        merged = self._details.setdefault(key, detail)
        self._texts.setdefault(key, Buffer()).add(detail.text or detail.summary or "")
        # These come once, in any of the deltas; an empty one erases nothing.
        merged.signature = detail.signature or merged.signature
        merged.data = detail.data or merged.data
        merged.id = detail.id or merged.id
        merged.format = detail.format or merged.format
        self.signed = self.signed or is_signed(detail)

    def accepts(self, detail: ChatReasoningDetail) -> bool:
        """Whether a detail belongs to this reasoning.

        Once this is signed, only a detail with its id or index does; and beside `data`, neither
        other `data` nor more text of a detail that has come.
        """
        text, known = text_of([detail]), self._details.values()
        if not self.signed or not (text or is_signed(detail)):
            # capture: reasoning-details-only, encrypted-details-in-one-chunk
            return True
        encrypted = any(one.data for one in known)
        if encrypted and detail.data:
            # capture: encrypted-details-of-one-index, encrypted-details-in-one-chunk
            # Equal `data` under one index is a detail that is sent again; other `data` is another
            # reasoning's.
            return any(
                (one.data, one.index) == (detail.data, detail.index)
                and (not one.id or not detail.id or one.id == detail.id)
                for one in known
            )
        ids = {one.id for one in known if one.id}
        if detail.id and ids:
            return detail.id in ids
        if encrypted and text and (detail.type, detail.index) in self._details:
            # capture: encrypted-details-of-one-index
            # Where every reasoning has index 0, text after `data` begins the next one.
            return False
        return any(one.index == detail.index for one in known)

    def end(self, id: str, origin: str | None) -> ReasoningEnd:
        """Returns the end of the reasoning, with an origin even where it is not signed: a host may
        want its reasoning back all the same."""
        if not self._details:
            return ReasoningEnd(id, origin=origin)
        for key, detail in self._details.items():
            text = whole_characters(self._texts[key].text) or None
            if detail.summary is not None:
                detail.summary = text
            else:
                detail.text = text
        details = list(self._details.values())
        end = ReasoningEnd(
            id,
            signature=next((one.signature for one in details if one.signature), None),
            encrypted=next((one.data for one in details if one.data), None),
            origin=origin or wire.NAME,
            extra=Raw(msgspec.json.encode({"reasoning_details": details})),
        )
        return unwrap_reasoning_end(end)


def text_of(details: Sequence[ChatReasoningDetail]) -> str:
    return "".join(one.text or one.summary or "" for one in details)


def is_summary(details: Sequence[ChatReasoningDetail]) -> bool:
    return any(one.type == "reasoning.summary" for one in details)


def is_signed(detail: ChatReasoningDetail) -> bool:
    return bool(detail.signature or detail.data)


def split_by_reasoning(
    current: ReasoningDetails, details: Sequence[ChatReasoningDetail]
) -> list[tuple[ReasoningDetails, list[ChatReasoningDetail]]]:
    """Adds details to the reasonings they belong to: the current one, then new ones.

    Returns each reasoning that got some, with those it got, in the order they came.
    """
    found: list[tuple[ReasoningDetails, list[ChatReasoningDetail]]] = [(current, [])]
    for detail in details:
        if not found[-1][0].accepts(detail):
            found.append((ReasoningDetails(), []))
        reasoning, added = found[-1]
        reasoning.add(detail)
        added.append(detail)
    return [(reasoning, added) for reasoning, added in found if added]
