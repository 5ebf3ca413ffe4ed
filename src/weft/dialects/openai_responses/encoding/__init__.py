"""How a Responses stream is written: its items, their kinds, and the response around them."""
