"""Gemini's generateContent: streams over server-sent events, and whole bodies."""
