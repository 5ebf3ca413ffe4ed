"""The Messages API, as Anthropic sends it and as its imitators do."""
