"""Providers: where sandboxes come from. They know processes and files, never the bus."""
