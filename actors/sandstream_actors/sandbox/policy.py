"""What an actor's operator lets tasks have of the actor's machine."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

SETTING = "SANDSTREAM_SANDBOX_ALLOW"


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """What whoever asks may have of the actor's machine. A caller's own process allows itself all
    of it; an actor that serves others allows what its operator says.
    """

    grants: bool = True
    """Paths of the host, repositories that lie there, and ones that it fetches in other ways than
    by HTTP, which may use its keys."""
    network: bool = True
    """The host's network, with all that listens on it."""
    unlimited: bool = True
    """No limit of memory or processes."""
    private_sources: bool = True
    """Repositories of hosts that are not public: its own loopback, its network."""

    @classmethod
    def of(cls, allowed: Iterable[str]) -> Policy:
        """From words; raises ValueError for an unknown one."""
        words = {word.strip() for word in allowed} - {""}
        fields = {name.replace("_", "-"): name for name in cls.__struct_fields__}
        unknown = sorted(words - set(fields))
        if unknown:
            known = ", ".join(fields)
            raise ValueError(f"{unknown[0]!r} cannot be allowed; choose from {known}")
        return cls(**{name: word in words for word, name in fields.items()})


def how_to_allow(word: str) -> str:
    """The end of a refusal."""
    return f"its operator can allow it with {SETTING}={word}"
