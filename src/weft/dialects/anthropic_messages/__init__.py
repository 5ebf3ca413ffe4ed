"""The Messages API, as Anthropic serves it and as compatible servers do."""
