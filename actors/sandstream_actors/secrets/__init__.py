"""Secrets in text: how they are recognised and removed."""
