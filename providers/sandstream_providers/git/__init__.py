"""Cloning repositories for boxes, outside of the boxes."""
