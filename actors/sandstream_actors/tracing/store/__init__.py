"""Traces in an SQLite file of this machine, and what is asked of it."""
