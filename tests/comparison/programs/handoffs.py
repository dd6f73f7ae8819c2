"""Handoffs: who answers, what the next agent reads, what the items and events say."""

from typing import Any

from pydantic import BaseModel

from comparison.program import MODEL, Probe, program
from comparison.programs.outputs import Event


class Reason(BaseModel):
    why: str
    urgent: bool = False


def to_billing(m: Any) -> list[Any]:
    return [m.tool_call("transfer_to_billing"), m.text("Paid.")]


def rewritten(m: Any) -> list[Any]:
    """For what reads of the conversation cannot be told by its length."""
    return [
        m.tool_call("transfer_to_billing").when("I am Triage"),
        m.text("Paid.").when("I am Billing").forever(),
    ]


def billing(sdk: Any, probe: Probe, **options: Any) -> Any:
    about = f"I am Billing of <{probe.name}>."
    return sdk.Agent(**{"name": "Billing", "instructions": about, "model": MODEL} | options)


def triage(sdk: Any, probe: Probe, *handoffs: Any, **options: Any) -> Any:
    about = f"I am Triage of <{probe.name}>."
    defaults = {"name": "Triage", "instructions": about, "model": MODEL}
    return sdk.Agent(**defaults | {"handoffs": list(handoffs)} | options)


@program(to_billing)
async def handoff_plain(sdk: Any, probe: Probe) -> Any:
    agent = triage(sdk, probe, billing(sdk, probe, handoff_description="Knows invoices."))
    result = await sdk.Runner.run(agent, probe.input)
    probe.note(result.to_input_list(mode="normalized") == result.to_input_list())
    return result


@program(to_billing)
async def handoff_streamed(sdk: Any, probe: Probe) -> Any:
    return sdk.Runner.run_streamed(triage(sdk, probe, billing(sdk, probe)), probe.input)


@program(
    lambda m: [
        m.tool_call("transfer_to_b"),
        m.answer("One moment.", m.tool_call("transfer_to_c")),
        m.text("I am the last."),
    ]
)
async def handoff_chain(sdk: Any, probe: Probe) -> Any:
    last = sdk.Agent(name="C", instructions="Be C.", model="gpt-4.1-mini")
    middle = sdk.Agent(name="B", instructions="Be B.", model=MODEL, handoffs=[last])
    first = sdk.Agent(name="A", instructions="Be A.", model=MODEL, handoffs=[middle])
    return await sdk.Runner.run(first, probe.input)


@program(
    lambda m: [
        m.tool_call("transfer_to_pong"),
        m.tool_call("transfer_to_ping"),
        m.tool_call("transfer_to_pong"),
        m.text("Enough."),
    ]
)
async def handoffs_in_a_circle(sdk: Any, probe: Probe) -> Any:
    ping = sdk.Agent(name="Ping", instructions="ping", model=MODEL)
    pong = sdk.Agent(name="Pong", instructions="pong", model=MODEL, handoffs=[ping])
    ping.handoffs.append(pong)
    return sdk.Runner.run_streamed(ping, probe.input)


@program(
    lambda m: [m.tool_call("transfer_to_pong"), m.tool_call("transfer_to_ping")],
)
async def handoffs_until_max_turns(sdk: Any, probe: Probe) -> Any:
    ping = sdk.Agent(name="Ping", model=MODEL)
    pong = sdk.Agent(name="Pong", model=MODEL, handoffs=[ping])
    ping.handoffs.append(pong)
    return await sdk.Runner.run(ping, probe.input, max_turns=2)


@program(
    lambda m: [m.tool_call("transfer_to_billing", {"why": "late", "urgent": True}), m.text("Ok.")]
)
async def handoff_with_input(sdk: Any, probe: Probe) -> Any:
    async def noticed(ctx: Any, reason: Reason) -> None:
        probe.note(reason, ctx.context, type(reason) is Reason)

    move = sdk.handoff(billing(sdk, probe), on_handoff=noticed, input_type=Reason)
    probe.note(move.tool_name, move.tool_description, move.agent_name, move.input_json_schema)
    return await sdk.Runner.run(triage(sdk, probe, move), probe.input, context="ctx")


@program(lambda m: [m.tool_call("transfer_to_billing", {"why": "late"}), m.text("Ok.")])
async def handoff_with_a_default_in_its_input(sdk: Any, probe: Probe) -> Any:
    move = sdk.handoff(
        billing(sdk, probe), on_handoff=lambda ctx, reason: probe.note(reason), input_type=Reason
    )
    return await sdk.Runner.run(triage(sdk, probe, move), probe.input)


@program(lambda m: [m.tool_call("transfer_to_billing", {"urgent": "very"})])
async def handoff_with_invalid_input(sdk: Any, probe: Probe) -> Any:
    move = sdk.handoff(
        billing(sdk, probe), on_handoff=lambda ctx, reason: probe.note(reason), input_type=Reason
    )
    return await sdk.Runner.run(triage(sdk, probe, move), probe.input)


@program(lambda m: [m.tool_call("transfer_to_billing", "")])
async def handoff_with_missing_input(sdk: Any, probe: Probe) -> Any:
    move = sdk.handoff(
        billing(sdk, probe), on_handoff=lambda ctx, reason: probe.note(reason), input_type=Reason
    )
    return await sdk.Runner.run(triage(sdk, probe, move), probe.input)


@program(lambda m: [m.tool_call("transfer_to_billing", {"made": "up"}), m.text("Paid.")])
async def handoff_with_input_nobody_wants(sdk: Any, probe: Probe) -> Any:
    return await sdk.Runner.run(triage(sdk, probe, billing(sdk, probe)), probe.input)


@program(to_billing)
async def on_handoff_is_called(sdk: Any, probe: Probe) -> Any:
    def noticed(ctx: Any) -> None:
        ctx.context["moved"] = True
        probe.note("moved", ctx.usage.requests)

    context: dict[str, bool] = {}
    move = sdk.handoff(billing(sdk, probe), on_handoff=noticed)
    result = await sdk.Runner.run(triage(sdk, probe, move), probe.input, context=context)
    probe.note(context)
    return result


@program(lambda m: [m.tool_call("transfer_to_billing")])
async def on_handoff_raises(sdk: Any, probe: Probe) -> Any:
    def fail(ctx: Any) -> None:
        raise ValueError("not today")

    move = sdk.handoff(billing(sdk, probe), on_handoff=fail)
    return await sdk.Runner.run(triage(sdk, probe, move), probe.input)


@program(lambda m: [])
async def wrong_handoffs(sdk: Any, probe: Probe) -> Any:
    agent = billing(sdk, probe)
    wrong: list[dict[str, Any]] = [
        {"on_handoff": lambda ctx, more: None},
        {"on_handoff": lambda ctx: None, "input_type": Reason},
        {"input_type": Reason},
        {"on_handoff": "no function", "input_type": Reason},
    ]
    for options in wrong:
        try:
            sdk.handoff(agent, **options)
            probe.note(sorted(options), "accepted")
        except Exception as error:
            probe.note(sorted(options), type(error).__name__)
    return None


@program(lambda m: [m.tool_call("escalate"), m.text("Paid.")])
async def handoff_under_another_name(sdk: Any, probe: Probe) -> Any:
    move = sdk.handoff(
        billing(sdk, probe, name="Billing & Co. (EU)"),
        tool_name_override="escalate",
        tool_description_override="When in doubt.",
    )
    return await sdk.Runner.run(triage(sdk, probe, move), probe.input)


@program(lambda m: [m.tool_call("transfer_to_billing___co___eu_"), m.text("Paid.")])
async def handoff_name_is_made_of_the_agents_name(sdk: Any, probe: Probe) -> Any:
    agent = billing(sdk, probe, name="Billing & Co. (EU)")
    probe.note(sdk.Handoff.default_tool_name(agent), sdk.Handoff.default_tool_description(agent))
    return await sdk.Runner.run(triage(sdk, probe, agent), probe.input)


@program(lambda m: [m.text("No one to ask.")])
async def disabled_handoffs_are_hidden(sdk: Any, probe: Probe) -> Any:
    def allowed(ctx: Any, agent: Any) -> bool:
        probe.note("asked", ctx.context, agent.name)
        return bool(ctx.context == "open")

    async def later(ctx: Any, agent: Any) -> bool:
        return True

    moves = [
        sdk.handoff(billing(sdk, probe, name="One"), is_enabled=False),
        sdk.handoff(billing(sdk, probe, name="Two"), is_enabled=allowed),
        sdk.handoff(billing(sdk, probe, name="Three"), is_enabled=later),
    ]
    return await sdk.Runner.run(triage(sdk, probe, *moves), probe.input, context="closed")


@program(lambda m: [m.tool_call("transfer_to_billing")])
async def disabled_handoff_is_called(sdk: Any, probe: Probe) -> Any:
    move = sdk.handoff(billing(sdk, probe), is_enabled=False)
    return await sdk.Runner.run(triage(sdk, probe, move), probe.input)


@program(
    lambda m: [
        m.tool_calls(("transfer_to_sales", {}), ("transfer_to_billing", {})),
        m.text("Sold."),
    ]
)
async def two_handoffs_in_one_answer(sdk: Any, probe: Probe) -> Any:
    moves = [
        sdk.handoff(billing(sdk, probe), on_handoff=lambda ctx: probe.note("billing")),
        sdk.handoff(billing(sdk, probe, name="Sales"), on_handoff=lambda ctx: probe.note("sales")),
    ]
    return sdk.Runner.run_streamed(triage(sdk, probe, *moves), probe.input)


@program(
    lambda m: [
        m.answer(
            "Looking.",
            m.tool_call("transfer_to_billing"),
            m.tool_call("look_up", {"n": 1}),
        ),
        m.text("Paid."),
    ]
)
async def handoff_beside_a_tool(sdk: Any, probe: Probe) -> Any:
    @sdk.function_tool
    def look_up(n: int) -> str:
        probe.note("looked up", n)
        return f"invoice {n}"

    agent = triage(sdk, probe, billing(sdk, probe), tools=[look_up])
    return sdk.Runner.run_streamed(agent, probe.input)


@program(lambda m: [m.tool_calls(("look_up", {}), ("transfer_to_billing", {})), m.text("Paid.")])
async def handoff_beside_the_tool_that_ends_a_run(sdk: Any, probe: Probe) -> Any:
    @sdk.function_tool
    def look_up() -> str:
        return "invoice"

    agent = triage(
        sdk,
        probe,
        billing(sdk, probe),
        tools=[look_up],
        tool_use_behavior="stop_on_first_tool",
    )
    return await sdk.Runner.run(agent, probe.input)


@program(to_billing)
async def handoff_named_as_a_tool(sdk: Any, probe: Probe) -> Any:
    @sdk.function_tool
    def transfer_to_billing() -> str:
        probe.note("the tool")
        return "never"

    agent = triage(sdk, probe, billing(sdk, probe), tools=[transfer_to_billing])
    return await sdk.Runner.run(agent, probe.input)


@program(lambda m: [])
async def handoff_named_as_a_tool_is_an_error(sdk: Any, probe: Probe) -> Any:
    @sdk.function_tool
    def transfer_to_billing() -> str:
        return "never"

    agent = triage(sdk, probe, billing(sdk, probe), tools=[transfer_to_billing])
    config = sdk.RunConfig(tool_name_collision_policy="error")
    return await sdk.Runner.run(agent, probe.input, run_config=config)


@program(lambda m: [m.tool_call("transfer_to_billing"), m.text("Second.")])
async def two_handoffs_of_one_name(sdk: Any, probe: Probe) -> Any:
    first = billing(sdk, probe, instructions="first")
    second = billing(sdk, probe, instructions="second")
    return await sdk.Runner.run(triage(sdk, probe, first, second), probe.input)


@program(
    lambda m: [
        m.tool_call("f"),
        m.tool_call("transfer_to_billing"),
        m.tool_call("f"),
        m.tool_call("transfer_to_triage"),
        m.text("Done."),
    ]
)
async def tool_choice_is_reset_per_agent(sdk: Any, probe: Probe) -> Any:
    @sdk.function_tool
    def f() -> str:
        return "f"

    forced = sdk.ModelSettings(tool_choice="required")
    second = billing(sdk, probe, tools=[f], model_settings=forced)
    first = triage(sdk, probe, second, tools=[f], model_settings=forced)
    second.handoffs.append(first)
    return await sdk.Runner.run(first, probe.input)


@program(
    lambda m: [
        m.tool_call("transfer_to_billing"),
        m.structured({"name": "Fair", "guests": [], "color": "red"}),
    ]
)
async def output_type_of_the_last_agent(sdk: Any, probe: Probe) -> Any:
    agent = triage(sdk, probe, billing(sdk, probe, output_type=Event))
    return await sdk.Runner.run(agent, probe.input)


@program(
    lambda m: [
        m.answer(
            m.tool_call("transfer_to_billing"), usage=m.Usage(input_tokens=5, output_tokens=2)
        ),
        m.answer("Paid.", usage=m.Usage(input_tokens=7, output_tokens=3, cached_tokens=4)),
    ]
)
async def usage_over_a_handoff(sdk: Any, probe: Probe) -> Any:
    return await sdk.Runner.run(triage(sdk, probe, billing(sdk, probe)), probe.input)


@program(lambda m: [m.tool_call("transfer_to_billing"), m.text("Paid."), m.text("Again.")])
async def continuation_with_the_last_agent(sdk: Any, probe: Probe) -> Any:
    first = await sdk.Runner.run(triage(sdk, probe, billing(sdk, probe)), probe.input)
    items = [*first.to_input_list(), {"role": "user", "content": "And now?"}]
    return first, await sdk.Runner.run(first.last_agent, items)


@program(lambda m: [m.tool_call("transfer_to_billing"), m.text("Paid.")])
async def handoff_with_auto_previous_response_id(sdk: Any, probe: Probe) -> Any:
    agent = triage(sdk, probe, billing(sdk, probe))
    return await sdk.Runner.run(agent, probe.input, auto_previous_response_id=True)


@program(lambda m: [m.text("First."), m.tool_call("transfer_to_billing"), m.text("Paid.")])
async def handoff_with_previous_response_id(sdk: Any, probe: Probe) -> Any:
    agent = triage(sdk, probe, billing(sdk, probe))
    first = await sdk.Runner.run(agent, probe.input)
    return await sdk.Runner.run(agent, "Move on.", previous_response_id=first.last_response_id)


@program(lambda m: [m.tool_call("transfer_to_billing")])
async def handoff_filter_with_auto_previous_response_id(sdk: Any, probe: Probe) -> Any:
    move = sdk.handoff(billing(sdk, probe), input_filter=lambda data: data)
    agent = triage(sdk, probe, move)
    return await sdk.Runner.run(agent, probe.input, auto_previous_response_id=True)


@program(to_billing)
async def handoff_object_of_ones_own(sdk: Any, probe: Probe) -> Any:
    target = billing(sdk, probe)

    async def go(ctx: Any, arguments: str) -> Any:
        probe.note("arguments", arguments)
        return target

    move = sdk.Handoff(
        tool_name="transfer_to_billing",
        tool_description="Made by hand.",
        input_json_schema={"type": "object", "properties": {}, "additionalProperties": False},
        on_invoke_handoff=go,
        agent_name="Billing",
    )
    return await sdk.Runner.run(triage(sdk, probe, move), probe.input)


@program(lambda m: [])
async def handoffs_that_are_none(sdk: Any, probe: Probe) -> Any:
    for wrong in ("no list", None, {"a": 1}):
        try:
            sdk.Agent(name="A", handoffs=wrong)
            probe.note(str(wrong), "accepted")
        except Exception as error:
            probe.note(str(wrong), type(error).__name__)
    return None


@program(lambda m: [m.tool_call("transfer_to_billing"), m.tool_call("f"), m.text("Paid.")])
async def tools_of_the_next_agent(sdk: Any, probe: Probe) -> Any:
    @sdk.function_tool
    def f() -> str:
        return "f"

    second = billing(sdk, probe, tools=[f], model_settings=sdk.ModelSettings(temperature=0.1))
    agent = triage(sdk, probe, second, model_settings=sdk.ModelSettings(temperature=0.9))
    return sdk.Runner.run_streamed(agent, probe.input)
