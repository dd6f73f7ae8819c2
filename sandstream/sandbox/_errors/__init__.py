"""The errors of sandboxes, by where they come from."""
