"""Boxes at a vendor: what all hosted providers share. A vendor's own folder adds its API."""
