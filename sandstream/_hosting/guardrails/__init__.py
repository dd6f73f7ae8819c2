"""The user's guardrails, run for calls of the harness."""
