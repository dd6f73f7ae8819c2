"""What ``doctor`` says about sandboxes at Daytona."""

from __future__ import annotations

from sandstream_providers.daytona.account import KEY_VARIABLE, account_of
from sandstream_providers.daytona.vendor import DaytonaVendor
from sandstream_providers.hosted.errors import VendorRefused
from sandstream_providers.interface import ProviderError, ProviderUnavailable
from sandstream_providers.registry import Finding, Question

_ASK_S = 10.0
"""People wait for the answer."""


async def examine(question: Question) -> list[Finding]:
    """Is there an account, and does its key work?"""
    account = account_of(question.settings.endpoint, question.settings.api_key)
    if not account.has_key and not question.settings.endpoint:
        found = f"Daytona is not set up: sandboxes there need a key in {KEY_VARIABLE}"
        return [Finding(name="daytona", state="ok", found=found)]
    vendor = DaytonaVendor(account, call_s=_ASK_S)
    try:
        facts = await vendor.check()
    except VendorRefused as error:
        found = "Daytona refuses this account" if account.has_key else "there is no key for Daytona"
        return [Finding(name="daytona", state="problem", found=found, todo=str(error))]
    except ProviderUnavailable as error:
        return [Finding(name="daytona", state="problem", found="not installed", todo=str(error))]
    except ProviderError as error:
        found = f"Daytona cannot be used now ({account.api_url})"
        return [Finding(name="daytona", state="warning", found=found, todo=str(error))]
    finally:
        await vendor.close()
    text = f"Daytona accepts the key ({facts['service']}, region: {facts['region']})"
    return [Finding(name="daytona", state="ok", found=text)]
