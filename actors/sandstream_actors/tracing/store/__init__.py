"""The trace store: an SQLite file on this machine, and its queries."""
