"""Clients written in JavaScript, and command lines that come from npm, against the real gateway.

Run by `make test-clients`, which installs them; `make test` does not.
"""
