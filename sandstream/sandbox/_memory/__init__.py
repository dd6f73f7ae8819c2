"""Memories of sandbox agents: settings, digests, waiting for them."""
