"""The errors of the interface: what callers branch on never changes."""

from __future__ import annotations

import inspect

import pytest
from contract.stage import Stage
from sandstream_providers import interface
from sandstream_providers.interface import ProviderError

ERRORS = {
    "ProviderError": ("sandbox_error", False),
    "ProviderUnavailable": ("provider_unavailable", False),
    "BoxGone": ("box_gone", True),
    "LimitReached": ("limit_reached", False),
    "PathEscapes": ("path_escapes", False),
    "NotFound": ("not_found", False),
    "WrongKind": ("wrong_kind", False),
    "NotPermitted": ("not_permitted", False),
    "NoSpace": ("no_space", False),
    "CannotExecute": ("cannot_execute", False),
    "NoSuchSession": ("no_such_session", False),
    "StdinClosed": ("stdin_closed", False),
    "PortUnavailable": ("port_unavailable", False),
    "GitFailed": ("git_failed", False),
    "ScanOutdated": ("scan_outdated", False),
}
"""Name, code, whether the same may succeed later. The agents in boxes know the names."""


def test_codes_are_stable() -> None:
    found = {
        name: (error.code, error.retryable)
        for name, error in inspect.getmembers(interface, inspect.isclass)
        if issubclass(error, ProviderError)
    }
    assert found == ERRORS


@pytest.mark.parametrize("name", ERRORS)
def test_errors_carry_facts(name: str) -> None:
    error = getattr(interface, name)("what went wrong", path="/x")
    assert str(error) == "what went wrong"
    assert error.data == {"path": "/x"}


def test_a_provider_has_all_that_the_interface_names(stage: Stage) -> None:
    async def story() -> None:
        box = await stage.box()
        for given, protocol in ((stage.provider, interface.Provider), (box, interface.Box)):
            for name, method in inspect.getmembers(protocol, inspect.isfunction):
                if name.startswith("_"):
                    continue
                mine = inspect.signature(getattr(given, name))
                asked = inspect.signature(method)
                assert list(mine.parameters) == list(asked.parameters)[1:], name

    stage.run(story())
