"""What can go wrong with an engine and its images, as errors of the interface."""

from __future__ import annotations

from sandstream_providers.interface import NoSpace, ProviderError, ProviderUnavailable


class EngineSilent(ProviderUnavailable):
    """The engine does not answer, or not in time. It may answer later."""

    code = "engine_silent"
    retryable = True


class EngineRefused(ProviderError):
    """The engine said no. ``data["status"]`` is its HTTP status."""

    code = "engine_refused"

    @property
    def status(self) -> int:
        return int(str(self.data.get("status", 0)))


class NoSuchContainer(EngineRefused):
    """There is no container, image, network or execution of that name."""


class EngineConflict(EngineRefused):
    """It is in the wrong state for this, or the name is taken."""


class EngineFull(EngineRefused, NoSpace):
    """The disk of the engine is full. What boxes have written is still there."""

    code = NoSpace.code


class ForeignContainer(ProviderError):
    """A container that is not ours has the name that a box needs: ``data["container"]``."""

    code = "name_taken"


class ImageUnusable(ProviderError):
    """No box can be made of this image. ``data["reason"]``: ``name``, ``missing``, ``auth``,
    ``platform``, ``no_shell``, ``python``, ``pull``.
    """

    code = "image_unusable"
