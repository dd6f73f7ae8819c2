"""Processes that commands start and keep: actors, replicas."""
