"""Parses and renders Responses requests."""
