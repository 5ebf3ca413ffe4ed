"""Reads frames into parts."""
