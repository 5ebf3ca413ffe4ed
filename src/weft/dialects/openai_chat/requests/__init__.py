"""Parsing and rendering of Chat Completions request bodies."""
