"""Workspaces: content-addressed snapshots in the object store, and archives in and out of them."""
