"""The rules of the Messages API, and the state that their checks need."""
