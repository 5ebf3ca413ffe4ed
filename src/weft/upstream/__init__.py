"""Upstreams: model servers that Weft sends requests to."""
