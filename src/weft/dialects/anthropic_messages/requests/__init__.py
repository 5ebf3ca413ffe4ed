"""Parsing and rendering of Messages requests."""
