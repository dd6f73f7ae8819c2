"""Runs the user's own code for calls of the bus."""
