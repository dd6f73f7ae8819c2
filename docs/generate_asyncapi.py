"""Writes docs/asyncapi.yaml from the messages and subjects of the code.

    python docs/generate_asyncapi.py            write it
    python docs/generate_asyncapi.py --check    exit 1 if the file is not what would be written

Owns the table of channels: which subject carries which messages, and who writes and reads it. The
addresses come from `subjects.py`, the schemas from `messages.py`; neither is repeated here.
"""

from __future__ import annotations

import argparse
import re
import sys
import types
from pathlib import Path
from typing import Any, NamedTuple, Union, get_args, get_origin, get_type_hints

import msgspec
import yaml
from sandstream_bus import messages as m
from sandstream_bus import sandbox_messages as b
from sandstream_bus.subjects import Subjects

from sandstream.version import __version__

TARGET = Path(__file__).with_name("asyncapi.yaml")
PREFIX = "sandstream"
_SUBJECTS = Subjects(PREFIX)

PARAMETERS = {
    "agent": "The agent's name; bytes other than A-Z a-z 0-9 _ - are written =XX.",
    "run": "The run's id: 1 to 128 of A-Z a-z 0-9 _ - =.",
    "pool": "A harness pool or a tool host pool.",
    "call": "The call's id within its run, such as t1-0.",
    "name": "The timer's name within its run.",
    "sandbox": "The sandbox's id.",
    "provider": "The sandbox provider, such as local.",
    "node": "The node of the provider that has the sandbox.",
    "op": "The operation's id, chosen by whoever asks.",
    "consumer": "The durable consumer that gave up.",
    "sequence": "The stream sequence of the message that was parked.",
    "event": "The rest of the event's subject: start.POOL, model, done, and so on.",
}


_RESULTS = (
    b.Opened,
    b.Executed,
    b.Content,
    b.Listing,
    b.Patched,
    b.ToolAnswer,
    b.Checkpointed,
    b.Endpoint,
    b.Running,
)
"""What the `result` of a reply can be."""


class Channel(NamedTuple):
    """One row of the table."""

    key: str
    address: str
    title: str
    messages: tuple[type[Any], ...]
    writers: str
    readers: str
    stream: str
    """The stream that stores it; empty for core NATS."""
    open_to_all: bool = False
    """Anybody may publish here: an operation that the installation receives."""


def channels() -> list[Channel]:
    """The table, in the order of the grammar in `subjects.py`.

    A parameter is written =name= until the end, because subjects refuse curly brackets.
    """
    s = _SUBJECTS
    log, agents, parked = "SANDSTREAM_LOG", "SANDSTREAM_AGENTS", "SANDSTREAM_PARKED"
    table = [
        Channel(
            "task",
            s.task("AGENT").replace("AGENT", "=agent="),
            "A task for a deployed agent",
            (m.Task, m.Claim),
            "anybody",
            "harness",
            log,
            open_to_all=True,
        ),
        Channel(
            "agent",
            s.agent("AGENT").replace("AGENT", "=agent="),
            "Registration of a deployed agent; the last one counts",
            (m.AgentRegistered, m.Claim),
            "worker",
            "harness",
            agents,
        ),
        Channel(
            "start",
            s.start("=run=", "=pool="),
            "The run begins",
            (m.RunStarted, m.Claim),
            "harness, Runner",
            "harness of the pool",
            log,
        ),
        Channel(
            "turn",
            s.turn("=run=", "=pool="),
            "Take the next turn",
            (m.TurnRequested, m.RunMoved, m.RunReopened),
            "timer, client, Runner",
            "harness of the pool",
            log,
        ),
        Channel(
            "model",
            s.model("=run="),
            "The model's answer, or why it must be waited for",
            (m.ModelAnswered, m.ModelDeferred, m.Claim),
            "harness",
            "observers",
            log,
        ),
        Channel(
            "call",
            s.call("=run=", "=pool="),
            "Call the user's code",
            (m.CallRequested, m.Claim),
            "harness",
            "tool host of the pool",
            log,
        ),
        Channel(
            "run_sandbox",
            s.run_sandbox("=run=", "=provider="),
            "Do this in a sandbox; any node of the provider",
            (m.CallRequested, m.Claim),
            "harness",
            "sandbox actor",
            log,
        ),
        Channel(
            "run_sandbox_node",
            s.run_sandbox("=run=", "=provider=", "=node="),
            "Do this in a sandbox, on the node that has it",
            (m.CallRequested, m.Claim),
            "harness",
            "sandbox actor of the node",
            log,
        ),
        Channel(
            "started",
            s.started("=run=", "=call="),
            "An at-most-once call is about to run",
            (m.CallStarted,),
            "tool host",
            "tool host",
            log,
        ),
        Channel(
            "result",
            s.result("=run=", "=pool="),
            "The outcome of a call",
            (m.CallFinished, m.ModelAnswered, m.Claim),
            "tool host",
            "harness of the pool",
            log,
        ),
        Channel(
            "cancel",
            s.cancel("=run="),
            "Stop the run",
            (m.CancelRequested,),
            "anybody",
            "harness, tool host",
            log,
            open_to_all=True,
        ),
        Channel(
            "done",
            s.done("=run="),
            "The run's end",
            (m.RunDone, m.Claim),
            "harness",
            "clients, observers",
            log,
        ),
        Channel(
            "sandbox_state",
            s.sandbox_state("=sandbox="),
            "A sandbox's own log",
            (
                b.SandboxIntended,
                b.SandboxReady,
                b.SandboxCheckpointed,
                b.SandboxPaused,
                b.SandboxStopped,
                b.SandboxLost,
                b.SandboxDeleted,
                m.Claim,
            ),
            "sandbox actor",
            "sandbox actor, observers",
            log,
        ),
        Channel(
            "sandbox_op",
            s.sandbox_op("=sandbox=", "=provider="),
            "An operation on a sandbox; any node of the provider",
            (b.SandboxRequest, m.Claim),
            "anybody",
            "sandbox actor",
            log,
            open_to_all=True,
        ),
        Channel(
            "sandbox_op_node",
            s.sandbox_op("=sandbox=", "=provider=", "=node="),
            "An operation on a sandbox, on the node that has it",
            (b.SandboxRequest, m.Claim),
            "anybody",
            "sandbox actor of the node",
            log,
            open_to_all=True,
        ),
        Channel(
            "sandbox_reply",
            s.sandbox_reply("=sandbox=", "=op="),
            "The one outcome of an operation",
            (b.SandboxReply, m.Claim),
            "sandbox actor",
            "whoever asked",
            log,
        ),
        Channel(
            "timer",
            s.timer("=run=", "=name="),
            "A scheduled message; the server publishes its body to its target when due",
            (m.TurnRequested,),
            "harness",
            "the server",
            log,
        ),
        Channel(
            "parked",
            s.parked("=consumer=", 0).replace(".0", ".=sequence="),
            "A message that could not be handled, with the reason",
            (m.Parked,),
            "harness, tool host, actors",
            "people",
            parked,
        ),
        Channel(
            "alive",
            s.alive("=consumer="),
            "An empty question, answered by whoever serves that consumer, on its reply subject",
            (),
            "anybody",
            "the consumer's workers",
            "",
        ),
        Channel(
            "live",
            s.live("=event=", "=run="),
            "The run's stored events as they come",
            (
                m.RunStarted,
                m.TurnRequested,
                m.RunMoved,
                m.RunReopened,
                m.ModelAnswered,
                m.ModelDeferred,
                m.CallRequested,
                m.CallStarted,
                m.CallFinished,
                m.CancelRequested,
                m.RunDone,
                m.Claim,
            ),
            "the server",
            "anybody",
            "",
        ),
        Channel(
            "delta",
            s.delta("=run="),
            "Model stream events, never stored",
            (m.LiveEvent,),
            "harness, tool host",
            "anybody",
            "",
        ),
        Channel(
            "output",
            s.output("=run="),
            "Output of commands as it comes, never stored; {run} is the sandbox where no run asked",
            (b.LiveOutput,),
            "sandbox actor",
            "anybody",
            "",
        ),
    ]
    return [row._replace(address=re.sub(r"=(\w+)=", r"{\1}", row.address)) for row in table]


def document() -> dict[str, Any]:
    """The whole description as plain data."""
    table = channels()
    kinds = list(dict.fromkeys(kind for channel in table for kind in channel.messages))
    twins: dict[type[Any], type[Any]] = {}
    described = [_twin(kind, twins) for kind in (*kinds, m.Prepared, m.StopDecision, *_RESULTS)]
    _, schemas = msgspec.json.schema_components(
        described, ref_template="#/components/schemas/{name}"
    )
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Sandstream",
            "version": __version__,
            "description": (
                "Everything that is said on the bus. Generated by docs/generate_asyncapi.py from "
                "bus/sandstream_bus; docs/wire.md explains it. The prefix `sandstream` is a "
                "setting (SANDSTREAM_PREFIX)."
            ),
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": "application/json",
        "channels": {channel.key: _channel(channel) for channel in table},
        "operations": {
            f"{'receive' if channel.open_to_all else 'send'}_{channel.key}": _operation(channel)
            for channel in table
        },
        "components": {
            "messages": {kind.__name__: _message(kind) for kind in kinds},
            "schemas": dict(sorted(schemas.items())),
        },
    }


def _twin(kind: type[Any], twins: dict[type[Any], type[Any]]) -> type[Any]:
    """The struct with ``Any`` for ``Raw``: msgspec cannot describe a default of raw JSON."""
    if kind in twins:
        return twins[kind]
    hints = get_type_hints(kind, include_extras=True)
    fields: list[Any] = []
    for field in msgspec.structs.fields(kind):
        hint = _without_raw(hints[field.name], twins)
        if field.required:
            fields.append((field.name, hint))
        elif isinstance(field.default, msgspec.Raw):
            fields.append((field.name, Any, msgspec.UNSET))
        elif field.default_factory is not msgspec.NODEFAULT:
            default = msgspec.field(default_factory=field.default_factory)
            fields.append((field.name, hint, default))
        else:
            fields.append((field.name, hint, field.default))
    config = kind.__struct_config__
    twins[kind] = msgspec.defstruct(
        kind.__name__,
        fields,
        tag_field=config.tag_field,
        tag=config.tag,
        kw_only=True,
        namespace={"__doc__": kind.__doc__ or ""},
    )
    return twins[kind]


def _without_raw(hint: Any, twins: dict[type[Any], type[Any]]) -> Any:
    if hint is msgspec.Raw:
        return Any
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return _twin(hint, twins)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return Union[tuple(_without_raw(each, twins) for each in arguments)]  # noqa: UP007
    if origin in (list, dict):
        return origin[tuple(_without_raw(each, twins) for each in arguments)]
    return hint


def _channel(channel: Channel) -> dict[str, Any]:
    names = [name for name in PARAMETERS if "{" + name + "}" in channel.address]
    stored = f"Stored in {channel.stream}" if channel.stream else "Core NATS, not stored"
    return {
        "address": channel.address,
        "title": channel.title,
        "description": f"Written by: {channel.writers}. Read by: {channel.readers}. {stored}.",
        "parameters": {name: {"description": PARAMETERS[name]} for name in names},
        "messages": {
            kind.__name__: {"$ref": f"#/components/messages/{kind.__name__}"}
            for kind in channel.messages
        },
    }


def _operation(channel: Channel) -> dict[str, Any]:
    """Seen from the installation: what anybody publishes it receives, the rest it sends."""
    return {
        "action": "receive" if channel.open_to_all else "send",
        "channel": {"$ref": f"#/channels/{channel.key}"},
        "summary": channel.title,
        "messages": [
            {"$ref": f"#/channels/{channel.key}/messages/{kind.__name__}"}
            for kind in channel.messages
        ],
    }


def _message(kind: type[Any]) -> dict[str, Any]:
    tag = kind.__struct_config__.tag
    about = (kind.__doc__ or "").strip().partition("\n\n")[0]
    return {
        "name": tag or kind.__name__,
        "title": kind.__name__,
        **({"summary": " ".join(about.split())} if about else {}),
        "payload": {"$ref": f"#/components/schemas/{kind.__name__}"},
    }


def render() -> str:
    head = "# Generated by docs/generate_asyncapi.py; do not edit.\n"
    return head + yaml.safe_dump(document(), sort_keys=False, width=100, allow_unicode=True)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Write docs/asyncapi.yaml.")
    parser.add_argument("--check", action="store_true", help="only compare; exit 1 if it differs")
    options = parser.parse_args(argv)
    text = render()
    if not options.check:
        TARGET.write_text(text)
        return 0
    if TARGET.exists() and TARGET.read_text() == text:
        return 0
    sys.stderr.write("docs/asyncapi.yaml is out of date: run python docs/generate_asyncapi.py\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
