"""A module with tools, as the settings name them: `tests.agent_shop:refund`."""

import weft

TAX = 1.2


@weft.tool
def refund(order: str, amount: float) -> str:
    """Pay the money for an order back."""
    return f"{order}: {amount * TAX:.2f}"


def price(order: str) -> float:
    return len(order) * TAX
