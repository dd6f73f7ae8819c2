"""The interface of an MCP server. Subclass it for your own kind of connection."""

from __future__ import annotations

import abc
from typing import Any

from sandstream.mcp.approval import (
    NeedsApproval,
    RequireApprovalSetting,
    approval_policy,
    needs_approval,
)
from sandstream.mcp.contexts import MCPToolCustomDataExtractor, MCPToolMetaResolver
from sandstream.mcp.tool_names import safe_server_name
from sandstream.run_context import RunContextWrapper
from sandstream.tool import ToolErrorFunction


class Unset:
    """The type of "no failure function chosen", as opposed to ``None``."""


UNSET = Unset()


class MCPServer(abc.ABC):
    """A source of tools. Its creator connects it and cleans it up; a run does neither."""

    def __init__(
        self,
        use_structured_content: bool = False,
        require_approval: RequireApprovalSetting = None,
        failure_error_function: ToolErrorFunction | Unset | None = UNSET,
        tool_meta_resolver: MCPToolMetaResolver | None = None,
        custom_data_extractor: MCPToolCustomDataExtractor | None = None,
        *,
        tool_input_guardrails: list[Any] | None = None,
        tool_output_guardrails: list[Any] | None = None,
    ) -> None:
        """Set the options for all tools of the server.

        Args:
            use_structured_content: Give the model the structured result instead of the content.
            require_approval: Which tools a person must approve: ``always``, ``never``, a mapping of
                tool names, or a function.
            failure_error_function: Makes a text for the model of a failed call; ``None`` ends the
                run with the error. If it is not given, the agent's ``mcp_config`` applies.
            tool_meta_resolver: Makes the ``_meta`` that is sent with a call.
            custom_data_extractor: Makes data for your application of a result.
            tool_input_guardrails: Checks of the arguments before a call.
            tool_output_guardrails: Checks of the result after a call.
        """
        self.use_structured_content = use_structured_content
        self.tool_meta_resolver = tool_meta_resolver
        self.custom_data_extractor = custom_data_extractor
        self.tool_input_guardrails = tool_input_guardrails
        self.tool_output_guardrails = tool_output_guardrails
        self._approval_policy = approval_policy(require_approval)
        self._failure_error_function = failure_error_function

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """A readable name."""

    @property
    def safe_name(self) -> str:
        """The name for logs and errors: credentials in a URL are removed."""
        return safe_server_name(self.name)

    @property
    def connection_lost(self) -> bool:
        """Whether the server was connected and is known to be lost."""
        return False

    @abc.abstractmethod
    async def connect(self) -> None:
        """Start or reach the server. It stays connected until ``cleanup``."""

    @abc.abstractmethod
    async def cleanup(self) -> None:
        """End the connection, and the server if ``connect`` started it."""

    @abc.abstractmethod
    async def list_tools(
        self, run_context: RunContextWrapper[Any] | None = None, agent: Any | None = None
    ) -> list[Any]:
        """List the tools that an agent may use now.

        Args:
            run_context: The context of the run, for a tool filter that is a function.
            agent: The agent, for such a filter.

        Returns:
            The tools, as ``mcp.types.Tool``.
        """

    @abc.abstractmethod
    async def call_tool(
        self,
        tool_name: str,
        arguments: dict[str, Any] | None,
        meta: dict[str, Any] | None = None,
    ) -> Any:
        """Call a tool.

        Args:
            tool_name: The name of the tool on the server.
            arguments: The arguments.
            meta: The ``_meta`` of the request.

        Returns:
            The result, as ``mcp.types.CallToolResult``.
        """

    @property
    def cached_tools(self) -> list[Any] | None:
        """The tools of the latest listing, if known."""
        return None

    @abc.abstractmethod
    async def list_prompts(self) -> Any:
        """All prompts (``mcp.types.ListPromptsResult``)."""

    @abc.abstractmethod
    async def get_prompt(self, name: str, arguments: dict[str, Any] | None = None) -> Any:
        """A prompt with its arguments filled in (``mcp.types.GetPromptResult``).

        Args:
            name: The name of the prompt on the server.
            arguments: Values for the prompt's arguments, by name.
        """

    async def list_resources(self, cursor: str | None = None) -> Any:
        """A page of resources (``mcp.types.ListResourcesResult``).

        Args:
            cursor: The ``nextCursor`` of the page before; ``None`` asks for the first page.

        Raises:
            NotImplementedError: This kind of server has no resources.
        """
        raise self._not_supported("list_resources")

    async def list_resource_templates(self, cursor: str | None = None) -> Any:
        """A page of resource templates (``mcp.types.ListResourceTemplatesResult``).

        Args:
            cursor: The ``nextCursor`` of the page before; ``None`` asks for the first page.

        Raises:
            NotImplementedError: This kind of server has no resources.
        """
        raise self._not_supported("list_resource_templates")

    async def read_resource(self, uri: str) -> Any:
        """The content of a resource (``mcp.types.ReadResourceResult``).

        Args:
            uri: The address of the resource, from :meth:`list_resources`.

        Raises:
            NotImplementedError: This kind of server has no resources.
        """
        raise self._not_supported("read_resource")

    def needs_approval_for(self, tool: Any, agent: Any | None) -> NeedsApproval:
        """``needs_approval`` of a tool of this server.

        Args:
            tool: The tool, as ``mcp.types.Tool``.
            agent: The agent that would call it; ``None`` if that is not known.
        """
        return needs_approval(self._approval_policy, tool, agent)

    def failure_function(self, of_agent: ToolErrorFunction | None) -> ToolErrorFunction | None:
        """The server's own failure function if it has one, else the agent's.

        Args:
            of_agent: The function of the agent's ``mcp_config``.
        """
        own = self._failure_error_function
        return of_agent if isinstance(own, Unset) else own

    def _not_supported(self, method: str) -> NotImplementedError:
        return NotImplementedError(
            f"MCP server '{self.safe_name}' does not support {method}. Override this method in "
            "your server implementation."
        )
