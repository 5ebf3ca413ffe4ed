"""For every rule of every wire, a stream that breaks it and one that does not."""
