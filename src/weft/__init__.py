"""Weft speaks every LLM streaming dialect and makes each stream happen exactly once."""
