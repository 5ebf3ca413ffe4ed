"""Writes the frames and bodies of generateContent responses."""
