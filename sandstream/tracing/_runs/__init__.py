"""The spans of a run, as trace processors get them: folded from the run's log."""
