"""What the parsers and renderers of requests share, whatever the dialect."""
