"""What ``doctor`` says about sandboxes at E2B."""

from __future__ import annotations

from sandstream_providers.e2b.account import KEY_VARIABLE, account_of
from sandstream_providers.e2b.vendor import E2BVendor
from sandstream_providers.hosted.errors import VendorBusy, VendorRefused, VendorSilent
from sandstream_providers.interface import ProviderUnavailable
from sandstream_providers.registry import Finding, Question

_ASK_S = 10.0
"""People wait for the answer."""


async def examine(question: Question) -> list[Finding]:
    """Is there a key, and does the engine take it?"""
    account = account_of(question.settings.endpoint)
    if not account.is_asked_for:
        found = f"not in use: {KEY_VARIABLE} is not set"
        return [Finding(name="e2b", state="ok", found=found)]
    vendor = E2BVendor(account, call_s=_ASK_S)
    try:
        await vendor.check()
    except VendorRefused as error:
        found = f"{account.place} refuses us"
        return [Finding(name="e2b", state="problem", found=found, todo=str(error))]
    except ProviderUnavailable as error:
        return [Finding(name="e2b", state="problem", found="not installed", todo=str(error))]
    except (VendorSilent, VendorBusy) as error:
        found = f"{account.place} does not answer"
        return [Finding(name="e2b", state="warning", found=found, todo=str(error))]
    finally:
        await vendor.close()
    return [Finding(name="e2b", state="ok", found=f"{account.place} takes our key")]
