"""What the validator of Chat Completions remembers of a stream."""
