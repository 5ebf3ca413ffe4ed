"""The tools of the demo agent: a shop with two orders, in which nothing is ever paid."""

from weft.agent.tools import tool

ORDERS = {"A-17": ("a kite", 24.0), "A-18": ("a kettle", 39.5)}


def _order(name: str) -> tuple[str, float]:
    found = ORDERS.get(name)
    if found is None:
        raise LookupError(f"no order {name!r}; there are {', '.join(ORDERS)}")
    return found


@tool(retry="pure")
def order_status(order: str) -> dict[str, object]:
    """Returns the article, the price and the status of an order."""
    article, price = _order(order)
    return {"order": order, "article": article, "price": price, "status": "delivered"}


# `once`, as a payment without a key of its own would be: after a crash a person decides.
@tool(approval="always")
def refund(order: str) -> str:
    """Refunds the price of an order."""
    _, price = _order(order)
    return f"{price:.2f} EUR refunded for order {order} (a demo: nothing was paid)"
