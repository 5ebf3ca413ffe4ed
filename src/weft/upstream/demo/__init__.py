"""The built-in model: scripted, deterministic, and fluent in every dialect that has requests."""

from weft.upstream.demo.broken import CHUNKS, broken_stream
from weft.upstream.demo.scripts import DEFAULT, MODELS
from weft.upstream.demo.upstream import DemoUpstream

__all__ = ["CHUNKS", "DEFAULT", "MODELS", "DemoUpstream", "broken_stream"]
