"""Fold a run's events into spans: pure functions of the log."""
