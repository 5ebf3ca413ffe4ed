"""Reads the frames of generateContent responses."""
