"""The frames of a capture, response by response."""

from weft.captures import CaptureFrames, Splitter
from weft.codec import readable
from weft.sse import Frame


def frames_of_responses(raw: bytes, dialect: str) -> list[list[Frame]]:
    reader = CaptureFrames(limit=len(raw))
    splitter = Splitter(readable(dialect))
    responses: list[list[Frame]] = [[]]
    pieces = reader.heads.feed(raw)
    splitter.heads(pieces)
    for frame in reader.read(pieces) + reader.finish():
        if splitter.begins(frame):
            responses.append([])
        responses[-1].append(frame)
    return responses
