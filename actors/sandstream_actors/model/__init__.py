"""The model seam: how an agent's turn becomes a call of a model, and its answer.

`ModelClient.call(ModelRequest) -> ModelAnswer`, or `ModelCallError`. The only package that may
import `openai`, and it does so at the first call, or in `preload()`.
"""

from __future__ import annotations

from sandstream_actors.model.client import ModelClient
from sandstream_actors.model.interface import (
    NO_JSON,
    ModelAnswer,
    ModelCallError,
    ModelErrorKind,
    ModelRequest,
    OutputSchema,
    Usage,
    given,
)
from sandstream_actors.model.retry import RetryPolicy
from sandstream_actors.model.routes import Route, resolve, routes_from_env
from sandstream_actors.model.transport import preload

__all__ = [
    "NO_JSON",
    "ModelAnswer",
    "ModelCallError",
    "ModelClient",
    "ModelErrorKind",
    "ModelRequest",
    "OutputSchema",
    "RetryPolicy",
    "Route",
    "Usage",
    "given",
    "preload",
    "resolve",
    "routes_from_env",
]
