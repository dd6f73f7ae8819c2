"""Converts the user's objects to bus messages and back: agents, settings, results, states."""
