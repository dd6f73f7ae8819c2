"""The model client: turns a model request into an API call and reads the answer.

`ModelClient.call(ModelRequest) -> ModelAnswer`, or `ModelCallError`. This is the only package that
may import `openai`; it does so at the first call or in `preload()`.
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
