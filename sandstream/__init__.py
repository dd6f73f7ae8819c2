"""Sandstream: durable, distributed AI agents on NATS JetStream.

Everything public is importable from here. Names are loaded on first use, so importing this package
costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sandstream._surface import runtime as _runtime
from sandstream.version import __version__

if TYPE_CHECKING:
    from sandstream_actors.base import Actor as Actor
    from sandstream_bus.wire.specs import Budget as Budget

    from sandstream import sandbox as sandbox
    from sandstream._surface.agent_tool_stream import AgentToolStreamEvent as AgentToolStreamEvent
    from sandstream.agent import Agent as Agent
    from sandstream.agent import DynamicPromptFunction as DynamicPromptFunction
    from sandstream.agent import GenerateDynamicPromptData as GenerateDynamicPromptData
    from sandstream.agent import Prompt as Prompt
    from sandstream.agent import StopAtTools as StopAtTools
    from sandstream.agent import Tool as Tool
    from sandstream.agent import ToolsToFinalOutputFunction as ToolsToFinalOutputFunction
    from sandstream.agent_output import AgentOutputSchema as AgentOutputSchema
    from sandstream.agent_output import AgentOutputSchemaBase as AgentOutputSchemaBase
    from sandstream.client import Client as Client
    from sandstream.custom_tool import CustomTool as CustomTool
    from sandstream.custom_tool import CustomToolCustomDataContext as CustomToolCustomDataContext
    from sandstream.custom_tool import (
        CustomToolCustomDataExtractor as CustomToolCustomDataExtractor,
    )
    from sandstream.custom_tool import ToolCaller as ToolCaller
    from sandstream.deployed_agent import DeployedAgent as DeployedAgent
    from sandstream.error_handlers import RunErrorData as RunErrorData
    from sandstream.error_handlers import RunErrorHandler as RunErrorHandler
    from sandstream.error_handlers import RunErrorHandlerInput as RunErrorHandlerInput
    from sandstream.error_handlers import RunErrorHandlerResult as RunErrorHandlerResult
    from sandstream.error_handlers import RunErrorHandlers as RunErrorHandlers
    from sandstream.exceptions import AgentsException as AgentsException
    from sandstream.exceptions import BudgetExceeded as BudgetExceeded
    from sandstream.exceptions import GuardrailTimeout as GuardrailTimeout
    from sandstream.exceptions import (
        InputGuardrailTripwireTriggered as InputGuardrailTripwireTriggered,
    )
    from sandstream.exceptions import MaxTurnsExceeded as MaxTurnsExceeded
    from sandstream.exceptions import ModelBehaviorError as ModelBehaviorError
    from sandstream.exceptions import ModelRefusalError as ModelRefusalError
    from sandstream.exceptions import ModelTimeoutError as ModelTimeoutError
    from sandstream.exceptions import (
        OutputGuardrailTripwireTriggered as OutputGuardrailTripwireTriggered,
    )
    from sandstream.exceptions import RunCancelled as RunCancelled
    from sandstream.exceptions import RunErrorDetails as RunErrorDetails
    from sandstream.exceptions import RunFailed as RunFailed
    from sandstream.exceptions import (
        ToolInputGuardrailTripwireTriggered as ToolInputGuardrailTripwireTriggered,
    )
    from sandstream.exceptions import (
        ToolOutputGuardrailTripwireTriggered as ToolOutputGuardrailTripwireTriggered,
    )
    from sandstream.exceptions import ToolTimeoutError as ToolTimeoutError
    from sandstream.exceptions import UserError as UserError
    from sandstream.guardrail import GuardrailFunctionOutput as GuardrailFunctionOutput
    from sandstream.guardrail import InputGuardrail as InputGuardrail
    from sandstream.guardrail import InputGuardrailResult as InputGuardrailResult
    from sandstream.guardrail import OutputGuardrail as OutputGuardrail
    from sandstream.guardrail import OutputGuardrailResult as OutputGuardrailResult
    from sandstream.guardrail import input_guardrail as input_guardrail
    from sandstream.guardrail import output_guardrail as output_guardrail
    from sandstream.handoffs import Handoff as Handoff
    from sandstream.handoffs import HandoffInputData as HandoffInputData
    from sandstream.handoffs import HandoffInputFilter as HandoffInputFilter
    from sandstream.handoffs import default_handoff_history_mapper as default_handoff_history_mapper
    from sandstream.handoffs import (
        get_conversation_history_wrappers as get_conversation_history_wrappers,
    )
    from sandstream.handoffs import handoff as handoff
    from sandstream.handoffs import nest_handoff_history as nest_handoff_history
    from sandstream.handoffs import (
        reset_conversation_history_wrappers as reset_conversation_history_wrappers,
    )
    from sandstream.handoffs import (
        set_conversation_history_wrappers as set_conversation_history_wrappers,
    )
    from sandstream.items import HandoffCallItem as HandoffCallItem
    from sandstream.items import HandoffOutputItem as HandoffOutputItem
    from sandstream.items import InputItem as InputItem
    from sandstream.items import ItemHelpers as ItemHelpers
    from sandstream.items import MessageOutputItem as MessageOutputItem
    from sandstream.items import ModelResponse as ModelResponse
    from sandstream.items import ReasoningItem as ReasoningItem
    from sandstream.items import RunItem as RunItem
    from sandstream.items import ToolApprovalItem as ToolApprovalItem
    from sandstream.items import ToolCallItem as ToolCallItem
    from sandstream.items import ToolCallOutputItem as ToolCallOutputItem
    from sandstream.items import ToolOrigin as ToolOrigin
    from sandstream.items import ToolOriginType as ToolOriginType
    from sandstream.items import TResponseInputItem as TResponseInputItem
    from sandstream.lifecycle import AgentHooks as AgentHooks
    from sandstream.lifecycle import RunHooks as RunHooks
    from sandstream.mcp.errors import MCPToolCancellationError as MCPToolCancellationError
    from sandstream.memory.bus_session import BusSession as BusSession
    from sandstream.memory.openai_conversations_session import (
        OpenAIConversationsSession as OpenAIConversationsSession,
    )
    from sandstream.memory.session import Session as Session
    from sandstream.memory.session import SessionABC as SessionABC
    from sandstream.memory.session import SessionInputCallback as SessionInputCallback
    from sandstream.memory.session_settings import SessionSettings as SessionSettings
    from sandstream.memory.sqlite_session import SQLiteSession as SQLiteSession
    from sandstream.model_settings import ModelSettings as ModelSettings
    from sandstream.models.defaults import set_default_openai_api as set_default_openai_api
    from sandstream.models.defaults import set_default_openai_client as set_default_openai_client
    from sandstream.models.defaults import set_default_openai_key as set_default_openai_key
    from sandstream.models.interface import Model as Model
    from sandstream.models.interface import ModelProvider as ModelProvider
    from sandstream.models.interface import ModelTracing as ModelTracing
    from sandstream.models.multi_provider import MultiProvider as MultiProvider
    from sandstream.models.openai_provider import (
        OpenAIChatCompletionsModel as OpenAIChatCompletionsModel,
    )
    from sandstream.models.openai_provider import OpenAIProvider as OpenAIProvider
    from sandstream.models.openai_provider import OpenAIResponsesModel as OpenAIResponsesModel
    from sandstream.repl import run_demo_loop as run_demo_loop
    from sandstream.result import AgentToolInvocation as AgentToolInvocation
    from sandstream.result import RunResult as RunResult
    from sandstream.result import RunResultStreaming as RunResultStreaming
    from sandstream.retry import ModelRetryAdvice as ModelRetryAdvice
    from sandstream.retry import ModelRetryAdviceRequest as ModelRetryAdviceRequest
    from sandstream.retry import ModelRetryBackoffSettings as ModelRetryBackoffSettings
    from sandstream.retry import ModelRetryNormalizedError as ModelRetryNormalizedError
    from sandstream.retry import ModelRetrySettings as ModelRetrySettings
    from sandstream.retry import RetryDecision as RetryDecision
    from sandstream.retry import RetryPolicy as RetryPolicy
    from sandstream.retry import RetryPolicyContext as RetryPolicyContext
    from sandstream.retry import retry_policies as retry_policies
    from sandstream.run_config import CallModelData as CallModelData
    from sandstream.run_config import CallModelInputFilter as CallModelInputFilter
    from sandstream.run_config import ModelInputData as ModelInputData
    from sandstream.run_config import (
        OutputGuardrailBlockedMessageArgs as OutputGuardrailBlockedMessageArgs,
    )
    from sandstream.run_config import (
        OutputGuardrailBlockedMessageFormatter as OutputGuardrailBlockedMessageFormatter,
    )
    from sandstream.run_config import ReasoningItemIdPolicy as ReasoningItemIdPolicy
    from sandstream.run_config import RunConfig as RunConfig
    from sandstream.run_config import ToolErrorFormatter as ToolErrorFormatter
    from sandstream.run_config import ToolErrorFormatterArgs as ToolErrorFormatterArgs
    from sandstream.run_config import ToolExecutionConfig as ToolExecutionConfig
    from sandstream.run_config import ToolNameCollisionPolicy as ToolNameCollisionPolicy
    from sandstream.run_config import ToolNotFoundBehavior as ToolNotFoundBehavior
    from sandstream.run_context import AgentHookContext as AgentHookContext
    from sandstream.run_context import RunContextWrapper as RunContextWrapper
    from sandstream.run_context import TContext as TContext
    from sandstream.run_state import RunState as RunState
    from sandstream.runner import Runner as Runner
    from sandstream.stream_events import AgentUpdatedStreamEvent as AgentUpdatedStreamEvent
    from sandstream.stream_events import RawResponsesStreamEvent as RawResponsesStreamEvent
    from sandstream.stream_events import RunItemStreamEvent as RunItemStreamEvent
    from sandstream.stream_events import StreamEvent as StreamEvent
    from sandstream.tool import FunctionTool as FunctionTool
    from sandstream.tool import FunctionToolCustomDataContext as FunctionToolCustomDataContext
    from sandstream.tool import FunctionToolCustomDataExtractor as FunctionToolCustomDataExtractor
    from sandstream.tool import FunctionToolResult as FunctionToolResult
    from sandstream.tool import ToolOutputFileContent as ToolOutputFileContent
    from sandstream.tool import ToolOutputFileContentDict as ToolOutputFileContentDict
    from sandstream.tool import ToolOutputImage as ToolOutputImage
    from sandstream.tool import ToolOutputImageDict as ToolOutputImageDict
    from sandstream.tool import ToolOutputText as ToolOutputText
    from sandstream.tool import ToolOutputTextDict as ToolOutputTextDict
    from sandstream.tool import ToolsToFinalOutputResult as ToolsToFinalOutputResult
    from sandstream.tool import default_tool_error_function as default_tool_error_function
    from sandstream.tool import function_tool as function_tool
    from sandstream.tool_context import ToolContext as ToolContext
    from sandstream.tool_guardrails import (
        ToolGuardrailFunctionOutput as ToolGuardrailFunctionOutput,
    )
    from sandstream.tool_guardrails import ToolInputGuardrail as ToolInputGuardrail
    from sandstream.tool_guardrails import ToolInputGuardrailData as ToolInputGuardrailData
    from sandstream.tool_guardrails import ToolInputGuardrailResult as ToolInputGuardrailResult
    from sandstream.tool_guardrails import ToolOutputGuardrail as ToolOutputGuardrail
    from sandstream.tool_guardrails import ToolOutputGuardrailData as ToolOutputGuardrailData
    from sandstream.tool_guardrails import ToolOutputGuardrailResult as ToolOutputGuardrailResult
    from sandstream.tool_guardrails import tool_input_guardrail as tool_input_guardrail
    from sandstream.tool_guardrails import tool_output_guardrail as tool_output_guardrail
    from sandstream.tracing import AgentSpanData as AgentSpanData
    from sandstream.tracing import CustomSpanData as CustomSpanData
    from sandstream.tracing import FunctionSpanData as FunctionSpanData
    from sandstream.tracing import GenerationSpanData as GenerationSpanData
    from sandstream.tracing import GuardrailSpanData as GuardrailSpanData
    from sandstream.tracing import HandoffSpanData as HandoffSpanData
    from sandstream.tracing import MCPListToolsSpanData as MCPListToolsSpanData
    from sandstream.tracing import ResponseSpanData as ResponseSpanData
    from sandstream.tracing import Span as Span
    from sandstream.tracing import SpanData as SpanData
    from sandstream.tracing import SpanError as SpanError
    from sandstream.tracing import SpeechGroupSpanData as SpeechGroupSpanData
    from sandstream.tracing import SpeechSpanData as SpeechSpanData
    from sandstream.tracing import TaskSpanData as TaskSpanData
    from sandstream.tracing import Trace as Trace
    from sandstream.tracing import TracingConfig as TracingConfig
    from sandstream.tracing import TracingProcessor as TracingProcessor
    from sandstream.tracing import TranscriptionSpanData as TranscriptionSpanData
    from sandstream.tracing import TurnSpanData as TurnSpanData
    from sandstream.tracing import add_trace_processor as add_trace_processor
    from sandstream.tracing import agent_span as agent_span
    from sandstream.tracing import custom_span as custom_span
    from sandstream.tracing import flush_traces as flush_traces
    from sandstream.tracing import function_span as function_span
    from sandstream.tracing import gen_span_id as gen_span_id
    from sandstream.tracing import gen_trace_id as gen_trace_id
    from sandstream.tracing import generation_span as generation_span
    from sandstream.tracing import get_current_span as get_current_span
    from sandstream.tracing import get_current_trace as get_current_trace
    from sandstream.tracing import guardrail_span as guardrail_span
    from sandstream.tracing import handoff_span as handoff_span
    from sandstream.tracing import mcp_tools_span as mcp_tools_span
    from sandstream.tracing import response_span as response_span
    from sandstream.tracing import set_trace_processors as set_trace_processors
    from sandstream.tracing import set_trace_provider as set_trace_provider
    from sandstream.tracing import set_tracing_disabled as set_tracing_disabled
    from sandstream.tracing import set_tracing_export_api_key as set_tracing_export_api_key
    from sandstream.tracing import speech_group_span as speech_group_span
    from sandstream.tracing import speech_span as speech_span
    from sandstream.tracing import task_span as task_span
    from sandstream.tracing import trace as trace
    from sandstream.tracing import transcription_span as transcription_span
    from sandstream.tracing import turn_span as turn_span
    from sandstream.usage import Usage as Usage
    from sandstream.verbose import (
        enable_verbose_stdout_logging as enable_verbose_stdout_logging,
    )

_MODULES = {
    "sandstream.agent": (
        "Agent",
        "DynamicPromptFunction",
        "GenerateDynamicPromptData",
        "Prompt",
        "StopAtTools",
        "Tool",
        "ToolsToFinalOutputFunction",
    ),
    "sandstream.agent_output": ("AgentOutputSchema", "AgentOutputSchemaBase"),
    "sandstream._surface.agent_tool_stream": ("AgentToolStreamEvent",),
    "sandstream.client": ("Client",),
    "sandstream.custom_tool": (
        "CustomTool",
        "CustomToolCustomDataContext",
        "CustomToolCustomDataExtractor",
        "ToolCaller",
    ),
    "sandstream.deployed_agent": ("DeployedAgent",),
    "sandstream.error_handlers": (
        "RunErrorData",
        "RunErrorHandler",
        "RunErrorHandlerInput",
        "RunErrorHandlerResult",
        "RunErrorHandlers",
    ),
    "sandstream.exceptions": (
        "AgentsException",
        "BudgetExceeded",
        "GuardrailTimeout",
        "InputGuardrailTripwireTriggered",
        "MaxTurnsExceeded",
        "ModelBehaviorError",
        "ModelRefusalError",
        "ModelTimeoutError",
        "OutputGuardrailTripwireTriggered",
        "RunCancelled",
        "RunErrorDetails",
        "RunFailed",
        "ToolInputGuardrailTripwireTriggered",
        "ToolOutputGuardrailTripwireTriggered",
        "ToolTimeoutError",
        "UserError",
    ),
    "sandstream.guardrail": (
        "GuardrailFunctionOutput",
        "InputGuardrail",
        "InputGuardrailResult",
        "OutputGuardrail",
        "OutputGuardrailResult",
        "input_guardrail",
        "output_guardrail",
    ),
    "sandstream.handoffs": (
        "Handoff",
        "HandoffInputData",
        "HandoffInputFilter",
        "default_handoff_history_mapper",
        "get_conversation_history_wrappers",
        "handoff",
        "nest_handoff_history",
        "reset_conversation_history_wrappers",
        "set_conversation_history_wrappers",
    ),
    "sandstream.items": (
        "HandoffCallItem",
        "HandoffOutputItem",
        "InputItem",
        "ItemHelpers",
        "MessageOutputItem",
        "ModelResponse",
        "ReasoningItem",
        "RunItem",
        "TResponseInputItem",
        "ToolApprovalItem",
        "ToolCallItem",
        "ToolCallOutputItem",
        "ToolOrigin",
        "ToolOriginType",
    ),
    "sandstream.lifecycle": ("AgentHooks", "RunHooks"),
    "sandstream.mcp.errors": ("MCPToolCancellationError",),
    "sandstream.memory.bus_session": ("BusSession",),
    "sandstream.memory.openai_conversations_session": ("OpenAIConversationsSession",),
    "sandstream.memory.session": (
        "Session",
        "SessionABC",
        "SessionInputCallback",
    ),
    "sandstream.memory.session_settings": ("SessionSettings",),
    "sandstream.memory.sqlite_session": ("SQLiteSession",),
    "sandstream.model_settings": ("ModelSettings",),
    "sandstream.models.defaults": (
        "set_default_openai_api",
        "set_default_openai_client",
        "set_default_openai_key",
    ),
    "sandstream.models.interface": (
        "Model",
        "ModelProvider",
        "ModelTracing",
    ),
    "sandstream.models.multi_provider": ("MultiProvider",),
    "sandstream.models.openai_provider": (
        "OpenAIChatCompletionsModel",
        "OpenAIProvider",
        "OpenAIResponsesModel",
    ),
    "sandstream.result": (
        "AgentToolInvocation",
        "RunResult",
        "RunResultStreaming",
    ),
    "sandstream.retry": (
        "ModelRetryAdvice",
        "ModelRetryAdviceRequest",
        "ModelRetryBackoffSettings",
        "ModelRetryNormalizedError",
        "ModelRetrySettings",
        "RetryDecision",
        "RetryPolicy",
        "RetryPolicyContext",
        "retry_policies",
    ),
    "sandstream.run_config": (
        "CallModelData",
        "CallModelInputFilter",
        "ModelInputData",
        "OutputGuardrailBlockedMessageArgs",
        "OutputGuardrailBlockedMessageFormatter",
        "ReasoningItemIdPolicy",
        "RunConfig",
        "ToolErrorFormatter",
        "ToolErrorFormatterArgs",
        "ToolExecutionConfig",
        "ToolNameCollisionPolicy",
        "ToolNotFoundBehavior",
    ),
    "sandstream.run_context": (
        "AgentHookContext",
        "RunContextWrapper",
        "TContext",
    ),
    "sandstream.run_state": ("RunState",),
    "sandstream.repl": ("run_demo_loop",),
    "sandstream.runner": ("Runner",),
    "sandstream.stream_events": (
        "AgentUpdatedStreamEvent",
        "RawResponsesStreamEvent",
        "RunItemStreamEvent",
        "StreamEvent",
    ),
    "sandstream.tool": (
        "FunctionTool",
        "FunctionToolCustomDataContext",
        "FunctionToolCustomDataExtractor",
        "FunctionToolResult",
        "ToolOutputFileContent",
        "ToolOutputFileContentDict",
        "ToolOutputImage",
        "ToolOutputImageDict",
        "ToolOutputText",
        "ToolOutputTextDict",
        "ToolsToFinalOutputResult",
        "default_tool_error_function",
        "function_tool",
    ),
    "sandstream.tool_context": ("ToolContext",),
    "sandstream.tool_guardrails": (
        "ToolGuardrailFunctionOutput",
        "ToolInputGuardrail",
        "ToolInputGuardrailData",
        "ToolInputGuardrailResult",
        "ToolOutputGuardrail",
        "ToolOutputGuardrailData",
        "ToolOutputGuardrailResult",
        "tool_input_guardrail",
        "tool_output_guardrail",
    ),
    "sandstream.tracing": (
        "AgentSpanData",
        "CustomSpanData",
        "FunctionSpanData",
        "GenerationSpanData",
        "GuardrailSpanData",
        "HandoffSpanData",
        "MCPListToolsSpanData",
        "ResponseSpanData",
        "Span",
        "SpanData",
        "SpanError",
        "SpeechGroupSpanData",
        "SpeechSpanData",
        "TaskSpanData",
        "Trace",
        "TracingConfig",
        "TracingProcessor",
        "TranscriptionSpanData",
        "TurnSpanData",
        "add_trace_processor",
        "agent_span",
        "custom_span",
        "flush_traces",
        "function_span",
        "gen_span_id",
        "gen_trace_id",
        "generation_span",
        "get_current_span",
        "get_current_trace",
        "guardrail_span",
        "handoff_span",
        "mcp_tools_span",
        "response_span",
        "set_trace_processors",
        "set_trace_provider",
        "set_tracing_disabled",
        "set_tracing_export_api_key",
        "speech_group_span",
        "speech_span",
        "task_span",
        "trace",
        "transcription_span",
        "turn_span",
    ),
    "sandstream.usage": ("Usage",),
    "sandstream.verbose": ("enable_verbose_stdout_logging",),
    "sandstream_actors.base": ("Actor",),
    "sandstream_bus.wire.specs": ("Budget",),
}
_EXPORTS = {name: module for module, names in _MODULES.items() for name in names}


def _load_runtime() -> _runtime.Runtime:
    from sandstream._run.runtime import OwnRuntime

    return OwnRuntime()


_runtime.install(_load_runtime)


def __getattr__(name: str) -> Any:
    import importlib

    if name == "sandbox":
        return importlib.import_module("sandstream.sandbox")
    module = _EXPORTS.get(name)
    if module is None:
        raise AttributeError(f"module 'sandstream' has no attribute {name!r}")
    value = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_EXPORTS})


__all__ = ["__version__", "sandbox", *_EXPORTS]
