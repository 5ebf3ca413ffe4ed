"""Writes the events and bodies of Messages responses."""
