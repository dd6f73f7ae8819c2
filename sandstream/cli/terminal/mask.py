"""Removes keys from foreign text before people see it."""

from __future__ import annotations

from sandstream_actors.secrets.patterns import scrub

from sandstream.cli.terminal.render import clean, one_line


def masked(text: str) -> str:
    """What looks like a secret is masked, before a text is cut or wrapped: half a key is a leak."""
    return scrub(clean(text))


def masked_line(text: str) -> str:
    """The same as one line."""
    return one_line(scrub(text))
