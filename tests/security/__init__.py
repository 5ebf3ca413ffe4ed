"""Attacks on a real gateway, over sockets."""
