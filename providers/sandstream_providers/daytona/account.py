"""Which account at Daytona is used, and where its service is."""

from __future__ import annotations

import msgspec

from sandstream_providers.environment import variables
from sandstream_providers.hosted.errors import VendorRefused

DEFAULT_URL = "https://app.daytona.io/api"
KEY_VARIABLE = "DAYTONA_API_KEY"
KEYS_PAGE = "https://app.daytona.io/dashboard/keys"


class DaytonaAccount(msgspec.Struct, frozen=True, kw_only=True):
    """An API key, or a token (JWT) with its organization."""

    api_key: str = ""
    api_url: str = DEFAULT_URL
    target: str = ""
    """The region of new boxes. Empty: the organization's own."""
    jwt_token: str = ""
    organization_id: str = ""

    @property
    def has_key(self) -> bool:
        return bool(self.api_key or self.jwt_token)

    def headers(self) -> dict[str, str]:
        """What proves who we are.

        Raises:
            VendorRefused: a key is missing; the message says what to set.
        """
        if self.api_key:
            return {"Authorization": f"Bearer {self.api_key}"}
        if not self.jwt_token:
            raise VendorRefused(
                f"no key for Daytona is set: set {KEY_VARIABLE} where the sandbox actor runs "
                f"({KEYS_PAGE}), or DAYTONA_JWT_TOKEN and DAYTONA_ORGANIZATION_ID"
            )
        if not self.organization_id:
            raise VendorRefused(
                "DAYTONA_JWT_TOKEN needs an organization: set DAYTONA_ORGANIZATION_ID too"
            )
        return {
            "Authorization": f"Bearer {self.jwt_token}",
            "X-Daytona-Organization-ID": self.organization_id,
        }

    def __repr__(self) -> str:
        return f"DaytonaAccount(api_url={self.api_url!r}, target={self.target!r})"


def account_of(endpoint: str = "", api_key: str = "") -> DaytonaAccount:
    """The account that the environment of this process names.

    Args:
        endpoint: The service's address, if not the one that the environment names.
        api_key: The key, if not the one that the environment has.
    """
    found = variables()
    return DaytonaAccount(
        api_key=api_key or found.get(KEY_VARIABLE, ""),
        api_url=endpoint or found.get("DAYTONA_API_URL", "") or DEFAULT_URL,
        target=found.get("DAYTONA_TARGET", ""),
        jwt_token=found.get("DAYTONA_JWT_TOKEN", ""),
        organization_id=found.get("DAYTONA_ORGANIZATION_ID", ""),
    )
