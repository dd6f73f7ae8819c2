"""Sandboxes on this machine: bubblewrap namespaces where they can be had."""
