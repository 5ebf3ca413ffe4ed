"""What one Chat Completions response is written to: chunks, or the message of a body."""
