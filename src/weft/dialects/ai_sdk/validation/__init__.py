"""The rules of AI SDK streams, and what the validator remembers of one."""
