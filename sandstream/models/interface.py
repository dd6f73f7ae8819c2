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
    """A model. Subclass it and give it to an agent; the tool host calls it for each turn.

    Example:
        class Echo(Model):
            async def get_response(self, system_instructions, input, *arguments, **options):
                text = ItemHelpers.input_to_new_input_list(input)[-1]["content"]
                message = {
                    "type": "message",
                    "role": "assistant",
                    "content": [{"type": "output_text", "text": text}],
                }
                return ModelResponse(output=[message], usage=Usage())

            async def stream_response(self, *arguments, **options):
                raise NotImplementedError
                yield


        agent = Agent(name="Echo", model=Echo())
    """

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
        """Answer a conversation.

        Args:
            system_instructions: The instructions for the model.
            input: The conversation.
            model_settings: The settings of this call.
            tools: The tools that the model may call.
            output_schema: The schema of the output; ``None`` is plain text.
            handoffs: The handoffs that the model may call.
            tracing: Whether to trace the call, and with which data.
            previous_response_id: The response that the provider continues from.
            conversation_id: The conversation that the provider stores.
            prompt: A prompt that the provider stores.

        Returns:
            The answer, with its usage.
        """

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
        """Answer a conversation as a stream.

        Args:
            system_instructions: The instructions for the model.
            input: The conversation.
            model_settings: The settings of this call.
            tools: The tools that the model may call.
            output_schema: The schema of the output; ``None`` is plain text.
            handoffs: The handoffs that the model may call.
            tracing: Whether to trace the call, and with which data.
            previous_response_id: The response that the provider continues from.
            conversation_id: The conversation that the provider stores.
            prompt: A prompt that the provider stores.

        Returns:
            Events of the Responses API; the last one is ``response.completed``.
        """

    def get_retry_advice(self, request: ModelRetryAdviceRequest) -> ModelRetryAdvice | None:
        """Advise a retry policy about a failed call.

        Args:
            request: The error and the number of the attempt.

        Returns:
            The advice; ``None`` for none.
        """
        return None

    async def close(self) -> None:
        """Release resources."""
        return


class ModelProvider(abc.ABC):
    """Finds models by name.

    Example:
        class Echoes(ModelProvider):
            def get_model(self, model_name: str | None) -> Model:
                return Echo()


        result = await Runner.run(agent, "Hello?", run_config=RunConfig(model_provider=Echoes()))
    """

    @abc.abstractmethod
    def get_model(self, model_name: str | None) -> Model:
        """Find a model.

        Args:
            model_name: The name; ``None`` is the provider's default.

        Returns:
            The model.
        """

    async def aclose(self) -> None:
        """Release resources."""
        return
