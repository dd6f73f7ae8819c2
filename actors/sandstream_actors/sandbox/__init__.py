"""The sandbox actor: everything that happens inside sandboxes."""
