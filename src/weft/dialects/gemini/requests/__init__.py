"""Parsing and rendering of generateContent requests."""
