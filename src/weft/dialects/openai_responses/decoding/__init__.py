"""How a Responses stream is read: which item an event means, and what each kind of item says."""
