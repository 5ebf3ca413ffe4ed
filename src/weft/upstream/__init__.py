"""Upstreams: places that speak a dialect."""
