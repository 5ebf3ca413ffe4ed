"""How much to think: efforts and budgets of tokens."""

from weft.request import Effort

EFFORT_BUDGETS: dict[Effort, int] = {
    "none": 0,
    "minimal": 1024,
    "low": 2048,
    "medium": 8192,
    "high": 16384,
    "xhigh": 32768,
}


"""Tokens to think with; `max` is whatever there is."""


def effort_for_budget(budget: int) -> Effort:
    """The effort whose budget is the nearest from above."""
    return next((effort for effort, most in EFFORT_BUDGETS.items() if budget <= most), "max")
