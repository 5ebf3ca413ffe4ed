"""Writes parts as events."""
