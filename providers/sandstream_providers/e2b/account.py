"""Which account at which engine: from the settings of the provider and the environment."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

import msgspec

from sandstream_providers.environment import variables

KEY_VARIABLE = "E2B_API_KEY"
URL_VARIABLE = "E2B_API_URL"
DOMAIN_VARIABLE = "E2B_DOMAIN"
SANDBOX_URL_VARIABLE = "E2B_SANDBOX_URL"


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """An account. Where a text is empty, the SDK chooses: it knows the vendor's own cloud."""

    api_key: str = ""
    api_url: str = ""
    """The address of the API that makes boxes."""
    domain: str = ""
    """The domain of the names of boxes."""
    sandbox_url: str = ""
    """One address for the commands of all boxes, in place of a name for each box."""

    def __repr__(self) -> str:
        """Without the key: texts of errors and logs may show it."""
        return f"Account({self.place})"

    @property
    def place(self) -> str:
        """The address of the service, for people."""
        return self.api_url or self.domain or "the vendor's own cloud"

    @property
    def is_asked_for(self) -> bool:
        """Has this installation any setting for E2B?"""
        return self != Account()


def account_of(
    endpoint: str = "", api_key: str = "", environment: Mapping[str, str] | None = None
) -> Account:
    """Args:
    endpoint: The URL of an engine's API, or its domain; stronger than the environment.
    api_key: The key, if not the one that the environment has.
    environment: In place of this process's own.
    """
    env = variables(environment)
    api_url, domain = env.get(URL_VARIABLE, ""), env.get(DOMAIN_VARIABLE, "")
    sandbox_url = env.get(SANDBOX_URL_VARIABLE, "")
    if "://" in endpoint:
        api_url = endpoint
    elif endpoint:
        api_url, domain = "", endpoint
    if not sandbox_url and not domain and urlsplit(api_url).scheme == "http":
        sandbox_url = api_url  # a plain server has no names for its boxes: it serves them itself
    return Account(
        api_key=api_key or env.get(KEY_VARIABLE, ""),
        api_url=api_url.rstrip("/"),
        domain=domain,
        sandbox_url=sandbox_url.rstrip("/"),
    )
