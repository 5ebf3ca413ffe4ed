"""Chat Completions, as OpenAI sends it and as compatible servers do."""
