"""The OpenAI Responses API, as the Open Responses specification defines it."""
