"""Users and groups that a box is to have: the options ``users`` and ``groups``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sandstream_providers.interface import ProviderError

_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789_-")
_LONGEST = 32


def users_of(users: Sequence[str], groups: Mapping[str, Sequence[str]]) -> list[str]:
    """All users to make: those that are named, and the members of groups."""
    return list(dict.fromkeys([*users, *(name for names in groups.values() for name in names)]))


def check_names(names: Iterable[str]) -> None:
    """Raise ProviderError for a name that no system takes, or that a script would misread."""
    for name in names:
        if not 0 < len(name) <= _LONGEST or name[0] == "-" or not _CHARACTERS.issuperset(name):
            raise ProviderError(
                f"not a name for a user or a group: {name!r}. Use small letters, digits, '_', '-'"
            )
