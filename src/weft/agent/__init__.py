"""Durable agents: runs that survive a crash at any moment and never act twice."""
