"""The settings of the UI, from a file that people write: ``tui.toml`` in the home directory.

theme = "nord"
notify = false
[keys]
"session.terminal" = "ctrl+n"
"""

from __future__ import annotations

import tomllib
from pathlib import Path

import msgspec

from sandstream.exceptions import UserError
from sandstream.tui.keys import KEYS, name_of


class TuiSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What people can set."""

    theme: str = "dune"
    """The name of a theme."""
    notify: bool = True
    """Whether the bell rings and the terminal shows notices."""
    keys: dict[str, str] = {}
    """Other keys for actions, by their names: ``place.action``."""


def read_settings(home: Path) -> TuiSettings:
    """Read the file; without one, the defaults.

    Args:
        home: The directory that may have it.

    Raises:
        UserError: The file cannot be understood.
    """
    file = home / "tui.toml"
    try:
        found = msgspec.convert(tomllib.loads(file.read_text()), TuiSettings)
    except FileNotFoundError:
        return TuiSettings()
    except (tomllib.TOMLDecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise UserError(f"{file}: {error}") from None
    unknown = sorted(set(found.keys) - action_names())
    if unknown:
        raise UserError(f"{file}: [keys] has no action {unknown[0]!r}; see docs/tui.md")
    return found


def action_names() -> set[str]:
    """The names of all actions whose keys can be changed."""
    return {name for it in KEYS if (name := name_of(it))}
