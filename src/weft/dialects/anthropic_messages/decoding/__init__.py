"""Reads the content blocks of a Messages response."""
