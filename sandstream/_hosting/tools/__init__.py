"""Calls of the user's tools: their context, review, invocation and texts."""
