"""Chat Completions, as OpenAI sends it and as its many imitators do."""
