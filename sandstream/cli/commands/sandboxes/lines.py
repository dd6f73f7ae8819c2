"""What happened in sandboxes, as text: opened, saved, closed; what a command came to."""

from __future__ import annotations

import msgspec
from sandstream_bus.counts import numbered
from sandstream_bus.wire.messages import CallFinished
from sandstream_bus.wire.sandboxes import Checkpointed, Opened

from sandstream._inspect.command_answers import command_answer
from sandstream.cli.terminal.render import size

_DOING = {"open": "opening", "checkpoint": "saving", "close": "closing"}
_MOST = 400


def asked_text(kind: str, sandbox: str) -> str:
    return f"{_DOING[kind]} {sandbox}"


def life_text(event: CallFinished) -> str:
    """How a sandbox was opened, saved or closed."""
    if event.traits.result is Opened:
        opened = msgspec.json.decode(event.output, type=Opened)
        parts = [f"ready at {opened.root} on node {opened.node}"]
        if opened.restored:
            parts.append(f"from checkpoint {opened.restored[:12]}")
        if opened.notice:
            parts.append(opened.notice)
        return " · ".join(parts)
    saved = msgspec.json.decode(event.output, type=Checkpointed)
    text = "closed" if event.traits.closes_sandbox else "saved"
    if not saved.tree:
        return text
    amount = (
        f"{numbered(saved.files, 'file')}, {size(saved.size_bytes)}, {size(saved.new_bytes)} new"
    )
    return f"{text} · checkpoint {saved.tree[:12]} · {amount}"


def saved_tree(event: CallFinished) -> str:
    """The checkpoint with which a sandbox was closed, if there is one."""
    if not event.traits.closes_sandbox or event.error is not None:
        return ""
    return msgspec.json.decode(event.output, type=Checkpointed).tree


def result_text(text: str, *, is_output_shown: bool) -> str:
    """A tool's answer to the model, short: of a command its exit code, then its output."""
    found = command_answer(text)
    if found is None:
        return text[:_MOST]
    output = found.output.strip()
    return found.how if is_output_shown or not output else f"{found.how}: {output[:_MOST]}"


def command_text(text: str) -> str:
    """A tool's whole answer to the model; of a command how it ended, then its output."""
    found = command_answer(text)
    return text if found is None else f"{found.how}\n{found.output}".rstrip()


def whole_text(event: CallFinished, run: str) -> str:
    """Where the rest of a shortened output is."""
    if not event.full_output:
        return ""
    amount = size(event.full_output_bytes)
    return f"shortened; all {amount}: sandstream artifacts output {run} {event.call}"
