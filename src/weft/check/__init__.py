"""The checker of captured streams: which rules of their wire they break, and where."""

from weft.check.checker import Report, check, examine
from weft.check.clients import Verdict

__all__ = ["Report", "Verdict", "check", "examine"]
