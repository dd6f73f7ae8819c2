"""Your own models: objects that answer in the process that hosts the user's code."""

from __future__ import annotations

import abc
import enum
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from sandstream.items import ModelResponse, TResponseInputItem

if TYPE_CHECKING:
    from sandstream.agent_output import AgentOutputSchemaBase
    from sandstream.model_settings import ModelSettings
    from sandstream.retry import ModelRetryAdvice, ModelRetryAdviceRequest
    from sandstream.tool import FunctionTool


class ModelTracing(enum.Enum):
    """How much of a call may be traced."""

    DISABLED = 0
    ENABLED = 1
    ENABLED_WITHOUT_DATA = 2

    def is_disabled(self) -> bool:
        """Whether model calls are not traced."""
        return self is ModelTracing.DISABLED

    def include_data(self) -> bool:
        """Whether traces hold the input and output of model calls."""
        return self is ModelTracing.ENABLED


class Model(abc.ABC):
    """A model. Subclass it and give it to an agent; the tool host calls it for each turn."""

    @abc.abstractmethod
    async def get_response(
        self,
        system_instructions: str | None,
        input: str | list[TResponseInputItem],
        model_settings: ModelSettings,
        tools: list[FunctionTool],
        output_schema: AgentOutputSchemaBase | None,
        handoffs: list[Any],
        tracing: ModelTracing,
        *,
        previous_response_id: str | None,
        conversation_id: str | None,
        prompt: Any | None,
    ) -> ModelResponse:
        """Answer a conversation."""

    @abc.abstractmethod
    def stream_response(
        self,
        system_instructions: str | None,
        input: str | list[TResponseInputItem],
        model_settings: ModelSettings,
        tools: list[FunctionTool],
        output_schema: AgentOutputSchemaBase | None,
        handoffs: list[Any],
        tracing: ModelTracing,
        *,
        previous_response_id: str | None,
        conversation_id: str | None,
        prompt: Any | None,
    ) -> AsyncIterator[Any]:
        """Answer with Responses API stream events; the last one is ``response.completed``."""

    def get_retry_advice(self, request: ModelRetryAdviceRequest) -> ModelRetryAdvice | None:
        """Advice on a failed call for a retry policy; None: no special advice."""
        return None

    async def close(self) -> None:
        """Release resources."""
        return


class ModelProvider(abc.ABC):
    """Finds models by name."""

    @abc.abstractmethod
    def get_model(self, model_name: str | None) -> Model:
        """The model with that name; None: the provider's default."""

    async def aclose(self) -> None:
        """Release resources."""
        return
