"""Reasoning efforts, and the token budgets they stand for."""

from weft.request import Effort

EFFORT_BUDGETS: dict[Effort, int] = {
    "none": 0,
    # The smallest budget that Anthropic takes.
    "minimal": 1024,
    "low": 2048,
    "medium": 8192,
    "high": 16384,
    "xhigh": 32768,
}
"""In tokens; `max` has no budget."""


def effort_for_budget(budget: int) -> Effort:
    """Returns the lowest effort whose budget is at least this one."""
    return next((effort for effort, most in EFFORT_BUDGETS.items() if budget <= most), "max")
