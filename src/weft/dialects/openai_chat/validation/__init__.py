"""The rules of a Chat Completions stream, and what the validator remembers of one."""
