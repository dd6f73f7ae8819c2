"""What the operator of an actor lets tasks use of the actor's machine."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

SETTING = "SANDSTREAM_SANDBOX_ALLOW"


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """What a requester may use on the actor's machine. A caller's own process allows itself
    everything; an actor that serves others allows what its operator configured.
    """

    grants: bool = True
    """Paths of the host, repositories there, and repositories fetched in other ways than by HTTP,
    which may use the host's keys.
    """
    network: bool = True
    """The host's network, with all services that listen on it."""
    unlimited: bool = True
    """No limit of memory or processes."""
    private_sources: bool = True
    """Repositories on hosts that are not public: the loopback and the private network."""

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
