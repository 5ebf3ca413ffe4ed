"""Stages: parts in, parts out, between a decoder and the guard."""
