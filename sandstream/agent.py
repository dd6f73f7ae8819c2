"""The agent: a plain description, with no I/O. What crosses the bus is made of it in graph.py."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypedDict, TypeVar, cast

from sandstream.agent_output import AgentOutputSchemaBase
from sandstream.custom_tool import CustomTool
from sandstream.model_settings import ModelSettings
from sandstream.models.default_models import get_default_model_settings
from sandstream.models.interface import Model
from sandstream.run_context import RunContextWrapper
from sandstream.tool import FunctionTool, FunctionToolResult, ToolsToFinalOutputResult

TContext = TypeVar("TContext")

Tool = FunctionTool | CustomTool
Instructions = str | Callable[[Any, Any], str | Awaitable[str]]
ToolsToFinalOutputFunction = Callable[
    [RunContextWrapper[Any], list[FunctionToolResult]],
    ToolsToFinalOutputResult | Awaitable[ToolsToFinalOutputResult],
]


class StopAtTools(TypedDict):
    """End the run when one of these tools was called."""

    stop_at_tool_names: list[str]


ToolUseBehavior = (
    Literal["run_llm_again", "stop_on_first_tool"] | StopAtTools | ToolsToFinalOutputFunction
)


class Prompt(TypedDict, total=False):
    """A stored prompt of the Responses API."""

    id: str
    version: str
    variables: dict[str, Any]


@dataclass
class GenerateDynamicPromptData:
    """The argument of a prompt function."""

    context: RunContextWrapper[Any]
    agent: Agent[Any]


DynamicPromptFunction = Callable[[GenerateDynamicPromptData], Prompt | Awaitable[Prompt]]


@dataclass
class Agent(Generic[TContext]):
    """A model with instructions and tools. Holds no state of a run; share it between runs."""

    name: str
    handoff_description: str | None = None
    tools: list[Tool] = field(default_factory=list)
    instructions: Instructions | None = None
    prompt: Prompt | DynamicPromptFunction | None = None
    model: str | Model | None = None
    model_settings: ModelSettings = cast(ModelSettings, None)
    output_type: type[Any] | AgentOutputSchemaBase | None = None
    tool_use_behavior: ToolUseBehavior = "run_llm_again"
    reset_tool_choice: bool = True
    has_implicit_settings: bool = field(default=False, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise TypeError(f"Agent name must be a string, not {type(self.name).__name__}")
        if not self.name:
            raise TypeError("Agent name must not be empty")
        self._check_types()
        if self.model_settings is None:
            self.has_implicit_settings = True
            name = self.model if isinstance(self.model, str) else None
            if name is not None or self.model is None:
                self.model_settings = get_default_model_settings(name)
            else:
                self.model_settings = ModelSettings()
        else:
            self.model_settings = ModelSettings.coerce(self.model_settings)

    def _check_types(self) -> None:
        where = f"Agent {self.name!r}:"
        if not isinstance(self.tools, list):
            raise TypeError(f"{where} tools must be a list, not {type(self.tools).__name__}")
        for tool in self.tools:
            if not isinstance(tool, FunctionTool | CustomTool):
                hint = " (decorate it with @function_tool)" if callable(tool) else ""
                raise TypeError(f"{where} {tool!r} is not a tool{hint}")
        if not (self.instructions is None or isinstance(self.instructions, str)) and not callable(
            self.instructions
        ):
            raise TypeError(f"{where} instructions must be a string or a function")
        if not (self.model is None or isinstance(self.model, str | Model)):
            raise TypeError(f"{where} model must be a name or a Model object, not {self.model!r}")
        behavior = self.tool_use_behavior
        if isinstance(behavior, str):
            if behavior not in ("run_llm_again", "stop_on_first_tool"):
                raise TypeError(
                    f"{where} tool_use_behavior {behavior!r} is unknown; use 'run_llm_again', "
                    "'stop_on_first_tool', {'stop_at_tool_names': [...]} or a function"
                )
        elif isinstance(behavior, Mapping):
            if set(behavior) != {"stop_at_tool_names"}:
                raise TypeError(f"{where} tool_use_behavior must have the key stop_at_tool_names")
        elif not callable(behavior):
            raise TypeError(f"{where} tool_use_behavior must be a string, dict or function")

    def clone(self, **changes: Any) -> Agent[TContext]:
        """A copy with some fields changed. Shallow: lists that are not given are shared."""
        if "model_settings" not in changes and self.has_implicit_settings:
            changes["model_settings"] = None  # derived anew from the clone's model
        return dataclasses.replace(self, **changes)

    async def get_system_prompt(self, run_context: RunContextWrapper[TContext]) -> str | None:
        """The instructions of a turn."""
        if self.instructions is None or isinstance(self.instructions, str):
            return self.instructions
        count = len(inspect.signature(self.instructions).parameters)
        if count != 2:
            raise TypeError(
                f"Agent {self.name!r}: the instructions function must take exactly 2 arguments "
                f"(context, agent), but it takes {count}"
            )
        text = self.instructions(run_context, self)
        return await text if inspect.isawaitable(text) else text

    async def get_prompt(self, run_context: RunContextWrapper[TContext]) -> Prompt | None:
        """The stored prompt of a turn."""
        if self.prompt is None or not callable(self.prompt):
            return self.prompt
        prompt = self.prompt(GenerateDynamicPromptData(run_context, self))
        return await prompt if inspect.isawaitable(prompt) else prompt

    async def get_all_tools(self, run_context: RunContextWrapper[TContext]) -> list[Tool]:
        """The tools that are enabled now."""
        return [tool for tool in self.tools if await is_tool_enabled(tool, run_context, self)]


async def is_tool_enabled(
    tool: Tool, run_context: RunContextWrapper[Any], agent: Agent[Any]
) -> bool:
    if isinstance(tool, CustomTool):
        return True
    enabled = tool.is_enabled
    if isinstance(enabled, bool):
        return enabled
    result = enabled(run_context, agent)
    return bool(await result if inspect.isawaitable(result) else result)
