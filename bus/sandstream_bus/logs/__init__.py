"""Readers and writers of the logs: runs, conversations, sandboxes, memories, agents."""
