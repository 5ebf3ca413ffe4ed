"""Logs of runs, one of each released version: a new version must fold and finish what an old one
began."""
