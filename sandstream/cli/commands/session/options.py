"""Options of providers as people type them: ``--option image=python:3.13``."""

from __future__ import annotations

import argparse
from typing import Any

import msgspec

from sandstream.cli.exits import CliError, Exit


def options_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """The options; a value that is JSON counts as such, any other as text."""
    found: dict[str, Any] = {}
    for key, text in arguments.option:
        if key in found:
            raise CliError(Exit.USAGE, f"--option {key} was given twice")
        try:
            found[key] = msgspec.json.decode(text)
        except msgspec.DecodeError:
            found[key] = text
    if found and not arguments.provider:
        raise CliError(Exit.USAGE, "--option belongs to a provider: use --provider, too")
    return found
