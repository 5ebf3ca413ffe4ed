"""The Responses API, as the Open Responses specification writes it down."""
