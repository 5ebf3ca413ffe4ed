"""The rules of the dialect, and what checking a stream keeps track of."""
