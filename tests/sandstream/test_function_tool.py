"""Function tools: declaration, one invocation, failures, timeouts, results on the wire."""

import asyncio
import contextvars
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from sandstream import decorators
from sandstream.exceptions import ModelBehaviorError, ToolTimeoutError, UserError
from sandstream.run_context import RunContextWrapper
from sandstream.tool import (
    FunctionTool,
    ToolOutputFileContent,
    ToolOutputImage,
    ToolOutputText,
    default_tool_error_function,
    function_tool,
    invoke_function_tool,
    tool,
    tool_output_to_wire,
)
from sandstream.tool_context import ToolContext

DEFAULT_TEXT = "An error occurred while running the tool. Please try again."
EMPTY = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}


def context_for(tool: FunctionTool, arguments: str) -> ToolContext[Any]:
    return ToolContext(
        context="mine", tool_name=tool.name, tool_call_id="call_1", tool_arguments=arguments
    )


def invoke(tool: FunctionTool, arguments: str = "{}", **options: Any) -> Any:
    return asyncio.run(
        invoke_function_tool(tool, context_for(tool, arguments), arguments, **options)
    )


@function_tool
def add(a: int, b: int = 2) -> int:
    """Add two numbers."""
    return a + b


def raising(error: BaseException, **options: Any) -> FunctionTool:
    async def broken() -> None:
        raise error

    return function_tool(broken, **options)


def test_the_decorator_with_and_without_parentheses() -> None:
    @function_tool(name_override="renamed", delivery="at_most_once")
    def other() -> None: ...

    assert (add.name, add.description, add.delivery) == ("add", "Add two numbers.", "at_least_once")
    assert add.params_json_schema["required"] == ["a", "b"]
    assert (other.name, other.description, other.delivery) == ("renamed", "", "at_most_once")
    assert tool is function_tool is decorators.tool


def test_a_tool_made_by_hand() -> None:
    async def run(ctx: ToolContext[Any], arguments: str) -> str:
        return f"{ctx.context} {arguments}"

    hand_made = FunctionTool("hand", "By hand.", {}, run)
    assert hand_made.params_json_schema == EMPTY
    assert invoke(hand_made, '{"a": 1}') == 'mine {"a": 1}'


@pytest.mark.parametrize(
    ("arguments", "result"), [('{"a":1}', 3), ('{"a":"5","b":1}', 6), ('{"a":1,"z":0}', 3)]
)
def test_arguments(arguments: str, result: int) -> None:
    assert invoke(add, arguments) == result


def test_an_empty_argument_text_is_an_empty_object() -> None:
    assert invoke(function_tool(lambda: "ok"), "") == "ok"


@pytest.mark.parametrize("arguments", ['{"a":"x"}', "nope", " ", "", '{"a":NaN}', "{" * 100_000])
def test_bad_arguments_are_an_error_of_the_model(arguments: str) -> None:
    raises = function_tool(lambda a: a, failure_error_function=None, name_override="raises")
    assert invoke(add, arguments) == DEFAULT_TEXT
    if arguments != '{"a":"x"}':
        with pytest.raises(ModelBehaviorError) as caught:
            invoke(raises, arguments)
        assert str(caught.value) == "Invalid JSON input for tool raises"


@pytest.mark.parametrize("arguments", ["[]", "null", "3", '"a"'])
def test_arguments_that_are_no_object(arguments: str) -> None:
    seen: list[Exception] = []

    def handler(ctx: RunContextWrapper[Any], error: Exception) -> str:
        seen.append(error)
        return "bad"

    assert invoke(function_tool(lambda a: a, failure_error_function=handler), arguments) == "bad"
    assert isinstance(seen[0], ModelBehaviorError)
    assert str(seen[0]).endswith(": expected a JSON object")


def test_argument_errors_show_data_only_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_AGENTS_DONT_LOG_TOOL_DATA", "0")
    strict = function_tool(lambda: None, failure_error_function=None, name_override="t")
    with pytest.raises(ModelBehaviorError, match="tool t: JSON is malformed"):
        invoke(strict, "secret")


def test_the_context_reaches_the_function() -> None:
    @function_tool
    def who(ctx: ToolContext[str], suffix: str) -> str:
        return f"{ctx.context} {ctx.tool_name} {ctx.tool_call_id}{suffix}"

    assert invoke(who, '{"suffix":"!"}') == "mine who call_1!"


def test_sync_functions_run_in_a_thread_with_the_context_variables() -> None:
    variable = contextvars.ContextVar("variable", default=0)

    @function_tool
    def where() -> tuple[int, bool]:
        return variable.get(), threading.current_thread() is threading.main_thread()

    async def main() -> Any:
        variable.set(7)
        return await invoke_function_tool(where, context_for(where, ""), "")

    assert asyncio.run(main()) == (7, False)


def test_a_sync_function_that_raises_stop_iteration_does_not_hang() -> None:
    def stops() -> None:
        next(iter(()))

    assert invoke(function_tool(stops)) == DEFAULT_TEXT


def test_failures_by_handler() -> None:
    async def later(ctx: RunContextWrapper[Any], error: Exception) -> str:
        return f"later {error}"

    secret = ValueError("secret")
    assert invoke(raising(secret)) == DEFAULT_TEXT
    assert invoke(raising(secret, failure_error_function=lambda c, e: f"own {e}")) == "own secret"
    assert invoke(raising(secret, failure_error_function=later)) == "later secret"
    with pytest.raises(UserError, match="Error running tool broken: secret") as caught:
        invoke(raising(secret, failure_error_function=None))
    assert caught.value.__cause__ is secret
    ours = ModelBehaviorError("ours")
    with pytest.raises(ModelBehaviorError) as ours_caught:
        invoke(raising(ours, failure_error_function=None))
    assert ours_caught.value is ours


def test_a_failing_tool_made_by_hand_ends_the_run() -> None:
    async def run(ctx: ToolContext[Any], arguments: str) -> str:
        raise ValueError("secret")

    with pytest.raises(UserError, match="Error running tool hand: secret"):
        invoke(FunctionTool("hand", "", {}, run))


def test_on_invoke_tool_alone_handles_failures_too() -> None:
    broken = raising(ValueError("secret"))
    assert asyncio.run(_await(broken.on_invoke_tool(context_for(broken, ""), ""))) == DEFAULT_TEXT
    hard = raising(ValueError("secret"), failure_error_function=None)
    with pytest.raises(ValueError, match="secret"):
        asyncio.run(_await(hard.on_invoke_tool(context_for(hard, ""), "")))


async def _await(awaitable: Any) -> Any:
    return await awaitable


def test_a_formatter_is_asked_only_for_the_implicit_handler() -> None:
    def formatter(ctx: RunContextWrapper[Any], error: Exception, default: str) -> str:
        return f"formatted {error} {default == DEFAULT_TEXT}"

    def no_opinion(ctx: RunContextWrapper[Any], error: Exception, default: str) -> None: ...
    def fails(ctx: RunContextWrapper[Any], error: Exception, default: str) -> str:
        raise RuntimeError

    error = ValueError("e")
    chosen = raising(error, failure_error_function=default_tool_error_function)
    assert invoke(raising(error), error_formatter=formatter) == "formatted e True"
    assert invoke(chosen, error_formatter=formatter) == DEFAULT_TEXT
    assert invoke(raising(error), error_formatter=no_opinion) == DEFAULT_TEXT
    assert invoke(raising(error), error_formatter=fails) == DEFAULT_TEXT


def test_a_tool_that_cancels_itself_is_a_failed_tool() -> None:
    own = asyncio.CancelledError("own")
    assert invoke(raising(own)) == DEFAULT_TEXT
    assert invoke(raising(own, failure_error_function=lambda c, e: f"h {e}")) == "h own"
    with pytest.raises(UserError, match="own"):
        invoke(raising(own, failure_error_function=None))


def test_cancelling_the_call_goes_through() -> None:
    async def main() -> None:
        started = asyncio.Event()

        @function_tool
        async def waits() -> None:
            started.set()
            await asyncio.Event().wait()

        call = asyncio.create_task(invoke_function_tool(waits, context_for(waits, ""), ""))
        await started.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    asyncio.run(main())


def slow(**options: Any) -> FunctionTool:
    async def sleeps() -> None:
        await asyncio.Event().wait()

    return function_tool(sleeps, timeout=0.01, **options)


def test_timeouts() -> None:
    assert invoke(slow()) == "Tool 'sleeps' timed out after 0.01 seconds."
    assert (
        invoke(slow(failure_error_function=None)) == "Tool 'sleeps' timed out after 0.01 seconds."
    )
    assert invoke(slow(timeout_error_function=lambda c, e: f"own: {e}")).startswith("own: Tool")
    with pytest.raises(ToolTimeoutError) as caught:
        invoke(slow(timeout_behavior="raise_exception"))
    assert (caught.value.tool_name, caught.value.timeout_seconds) == ("sleeps", 0.01)


def test_a_timeout_error_of_the_tools_own_is_a_failure() -> None:
    assert invoke(raising(TimeoutError("mine"), timeout=5)) == DEFAULT_TEXT


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"timeout": 0}, ValueError),
        ({"timeout": float("inf")}, ValueError),
        ({"timeout": "1"}, TypeError),
        ({"timeout": True}, TypeError),
        ({"timeout": 1, "timeout_behavior": "x"}, ValueError),
        ({"timeout": 1, "timeout_error_function": 3}, TypeError),
        ({"delivery": "twice"}, ValueError),
    ],
)
def test_bad_options_name_the_tool(options: dict[str, Any], error: type[Exception]) -> None:
    async def named() -> None: ...

    with pytest.raises(error, match="'named'"):
        function_tool(named, **options)


def test_a_sync_tool_cannot_have_a_timeout() -> None:
    def sync() -> None: ...

    with pytest.raises(ValueError, match=r"'sync'.*`async def`"):
        function_tool(sync, timeout=1)


def test_a_renamed_copy_still_works() -> None:
    assert invoke(replace(add, name="plus"), '{"a":1}') == 3


IMAGE = {"type": "input_image", "image_url": "u"}


@pytest.mark.parametrize(
    ("value", "wire"),
    [
        ("x", "x"),
        (3, "3"),
        (None, "None"),
        ([], "[]"),
        ({"a": 1}, "{'a': 1}"),
        (ToolOutputText(text="t"), [{"type": "input_text", "text": "t"}]),
        ({"type": "text", "text": "t", "x": 1}, [{"type": "input_text", "text": "t"}]),
        ({"type": "text"}, "{'type': 'text'}"),
        (ToolOutputImage(image_url="u"), [IMAGE]),
        ({"type": "image", "detail": "low"}, "{'type': 'image', 'detail': 'low'}"),
        (
            ToolOutputImage(file_id="f", detail="low"),
            [{"type": "input_image", "file_id": "f", "detail": "low"}],
        ),
        (
            ToolOutputFileContent(file_data="d", filename="n"),
            [{"type": "input_file", "file_data": "d", "filename": "n"}],
        ),
        (
            [ToolOutputText(text="a"), {"type": "image", "image_url": "u"}],
            [{"type": "input_text", "text": "a"}, IMAGE],
        ),
        ([ToolOutputText(text="a"), "b"], "[ToolOutputText(type='text', text='a'), 'b']"),
    ],
)
def test_results_on_the_wire(value: Any, wire: Any) -> None:
    assert tool_output_to_wire(value) == wire


@pytest.mark.parametrize(
    "make",
    [
        ToolOutputImage,
        ToolOutputFileContent,
        lambda: ToolOutputFileContent(filename="x"),
        lambda: ToolOutputImage(image_url="u", detail="x"),  # type: ignore[arg-type]
    ],
)
def test_incomplete_outputs_are_refused(make: Callable[[], Any]) -> None:
    with pytest.raises(ValueError, match="ToolOutput"):
        make()


def test_importing_tools_does_not_import_pydantic_or_openai() -> None:
    code = (
        "import sys, sandstream.tool, sandstream.agent_output, sandstream.models;"
        "sys.exit(any(name in sys.modules for name in ('pydantic', 'openai')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
