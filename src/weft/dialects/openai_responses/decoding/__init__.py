"""Decodes the events about output items, by type of item."""
