"""The user's own code, run for calls of the bus."""
