"""What can go wrong between us and a vendor: an adapter translates its SDK's exceptions."""

from __future__ import annotations

from sandstream_providers.interface import ProviderError, ProviderUnavailable


class VendorBusy(ProviderError):
    """The vendor asks us to come back later (429), or failed before it did anything (5xx)."""

    code = "provider_busy"
    retryable = True

    def __init__(self, message: str, *, retry_after_s: float | None = None, **data: object) -> None:
        super().__init__(message, **data)
        self.retry_after_s = retry_after_s


class VendorSilent(ProviderError):
    """No answer came: the call may or may not have had its effect."""

    code = "provider_silent"
    retryable = True


class NameTaken(ProviderError):
    """The vendor has a box of this name already."""


class NoSuchBox(ProviderError):
    """The vendor knows no box of this id (any more)."""


class BoxAsleep(ProviderError):
    """The box exists, but does not run: commands need it to be woken first."""


class CannotPause(ProviderError):
    """This kind of box cannot be paused; it can be stopped."""


class AgentFailed(ProviderError):
    """Our agent cannot work in this box, or the vendor has no terminals. Scripts may still do."""


class NoRoot(ProviderError):
    """The user of the box may not make the workspace's directory."""


class NoUsers(ProviderError):
    """The box is to have users and groups, and its own user cannot become root."""


class VendorRefused(ProviderUnavailable):
    """The key is wrong or has expired, or the account may not do this: only people can help."""


class QuotaReached(ProviderError):
    """The account has as many boxes as it may have."""

    code = "quota_reached"
