"""A run's events as spans: pure functions of the log."""
