"""Writes output items, their events and the response object."""
