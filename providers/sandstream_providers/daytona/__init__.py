"""Sandboxes at Daytona."""
