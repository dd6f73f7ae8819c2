"""Loads the package ``docker``, which only programs with Docker sandboxes need."""

from __future__ import annotations

from typing import Any

from sandstream.sandbox.errors import ProviderUnavailableError


def load_docker() -> Any:
    """The module ``docker``.

    Raises:
        ProviderUnavailableError: if it is not installed.
    """
    try:
        import docker
    except ImportError as error:
        raise ProviderUnavailableError(
            provider="docker",
            reason="the package docker is not installed: pip install 'sandstream[docker]'",
            cause=error,
            retryable=False,
        ) from error
    return docker
