"""The widgets of the blocks of a transcript. They clean every foreign text."""

from __future__ import annotations

from markdown_it import MarkdownIt
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Markdown, Static
from textual.widgets.markdown import MarkdownStream

from sandstream._inspect.texts import count, error_text
from sandstream._inspect.visible_text import clean, one_line
from sandstream.tui.conversation import call_text
from sandstream.tui.conversation.blocks import (
    AgentText,
    AnyBlock,
    CallStep,
    Note,
    Thought,
    TurnHead,
    UserText,
)
from sandstream.tui.plain_text import line, text

_LIVE_LINES = 5
"""How many lines of a running command's output a folded block shows."""
_OWN_LINES = 30
"""How many lines of the output of a person's own command are shown."""
_MOST_TITLE = 70
_TONES = {
    "": "$foreground 80%",
    "good": "$success",
    "bad": "$error",
    "wait": "$warning",
    "quiet": "$foreground 50%",
}
_CALL_MARKS = {
    "asked": ("○", "$foreground 60%"),
    "running": ("●", "$secondary"),
    "done": ("✓", "$success"),
    "failed": ("✗", "$error"),
    "rejected": ("⊘", "$warning"),
    "handoff": ("→", "$secondary"),
}


def parser() -> MarkdownIt:
    """Markdown without the rules that bring characters into the text which were not in it:
    entities and the decoding of addresses could smuggle in what cleaning has removed.
    """
    return MarkdownIt("gfm-like", {"linkify": False, "html": False}).disable(
        ["entity", "autolink", "html_inline", "html_block"]
    )


def view_of(block: AnyBlock, *, unfolded: bool) -> BlockView:
    """The widget of a block."""
    if isinstance(block, AgentText):
        return AgentView(block)
    return LinesView(block, unfolded=unfolded)


class BlockView(Widget):
    """Base of the widgets of blocks.

    Args:
        block: What it shows.
        unfolded: Whether its details are shown.
    """

    can_focus = False

    def __init__(self, block: AnyBlock, *, unfolded: bool = False) -> None:
        super().__init__(classes=f"block {type(block).__name__.lower()}")
        self.block = block
        self.unfolded = unfolded

    async def show(self) -> None:
        """Show the block as it is now."""

    async def fold(self, unfolded: bool) -> None:
        """Show or hide the details.

        Args:
            unfolded: Whether the details are shown.
        """
        self.unfolded = unfolded
        await self.show()


class LinesView(BlockView, Static):
    """A block that is a few lines of text."""

    def __init__(self, block: AnyBlock, *, unfolded: bool = False) -> None:
        Static.__init__(self, "", markup=False)
        self.block = block
        self.unfolded = unfolded
        self.set_classes(f"block {type(block).__name__.lower()}")
        self.update(self._content())
        self.set_class(unfolded, "-unfolded")

    async def show(self) -> None:
        self.update(self._content())
        self.set_class(self.unfolded, "-unfolded")

    def _content(self) -> Content:
        match self.block:
            case TurnHead() as head:
                return turn_line(head)
            case UserText() as said:
                by = Content.styled(f"{one_line(said.by)}: ", "bold") if said.by else Content("")
                return Content.assemble(("❯ ", "bold $primary"), by, text(said.text))
            case Thought() as thought:
                if self.unfolded or thought.is_live:
                    return text(f"thinks: {thought.text}", "italic $foreground 60%")
                return line(f"thought: {thought.text}"[:300], "italic $foreground 50%")
            case CallStep() as step:
                return call_content(step, unfolded=self.unfolded)
            case Note() as note:
                return text(f"· {note.text}", _TONES[note.tone])
            case AgentText() as said:
                return text(said.text)


class AgentView(BlockView):
    """What an agent says, as Markdown; while it is written only the new part is parsed."""

    def __init__(self, block: AgentText) -> None:
        super().__init__(block)
        self._said = block
        self._shown = ""
        self._markdown = Markdown(parser_factory=parser, open_links=False)
        self._stream: MarkdownStream | None = None

    def compose(self) -> ComposeResult:
        with Vertical():
            yield self._markdown

    async def on_mount(self) -> None:
        await self.show()

    async def show(self) -> None:
        if not self._markdown.is_attached:
            return
        wanted = clean(self._said.text)
        if wanted != self._shown and wanted.startswith(self._shown):
            if self._said.is_live and self._stream is None:
                self._stream = Markdown.get_stream(self._markdown)
            if self._stream is not None:
                await self._stream.write(wanted[len(self._shown) :])
            else:
                await self._markdown.append(wanted[len(self._shown) :])
            self._shown = wanted
        elif wanted != self._shown:
            await self._end_stream()
            await self._markdown.update(wanted)
            self._shown = wanted
        if not self._said.is_live:
            await self._end_stream()
        self.set_class(self._said.is_live, "-live")

    async def _end_stream(self) -> None:
        if self._stream is not None:
            stream, self._stream = self._stream, None
            await stream.stop()

    async def on_unmount(self) -> None:
        await self._end_stream()


def turn_line(head: TurnHead) -> Content:
    """The line above a turn: its number, and how it ended."""
    parts: list[tuple[str, str]] = [(f"── turn {head.turn} ", "bold $primary 80%")]
    ended = head.ended
    if ended is not None:
        style = {"completed": "$success", "cancelled": "$warning"}.get(ended.status, "$error")
        parts.append((f"{ended.status} ", style))
        parts.append((f"{count(ended.usage.total_tokens)} tokens ", "dim"))
        if ended.provider:
            parts.append((f"{one_line(ended.provider)} ", "dim"))
        if ended.unsaved:
            parts.append((f"not saved: {one_line(ended.unsaved)} ", "$warning"))
        if ended.error is not None and ended.status != "cancelled":  # a note says why
            parts.append((one_line(error_text(ended.error))[:200], "$error"))
    return Content.assemble(*parts)


def call_content(step: CallStep, *, unfolded: bool) -> Content:
    """A call: one line; its live output while it runs; all of it if it is unfolded."""
    call = step.call
    mark, style = _CALL_MARKS[call.state]
    if step.is_waiting and call.state in ("asked", "running"):
        mark, style = "?", "bold $warning"
    elif step.is_stopped:
        mark, style = "⊘", "$warning"
    elif call_text.has_failed(call):
        mark, style = _CALL_MARKS["rejected" if call.state == "rejected" else "failed"]
    took = f" {call.duration_ms / 1000:.1f}s" if call.duration_ms >= 100 else ""
    parts: list[Content | tuple[str, str]] = [
        (f"{mark} ", style),
        line(
            call_text.shortened(call_text.title(call), 0 if unfolded else _MOST_TITLE),
            "$foreground",
        ),
    ]
    if step.is_waiting and mark == "?":
        parts.append(("  waits for your answer", "$warning"))
    result = call_text.outcome(call) or ("stopped" if step.is_stopped else "")
    if result and not unfolded and not step.is_own:
        parts.append(("  → ", "dim"))
        parts.append(line(result[:160], "$error" if mark == "✗" else "$foreground 70%"))
    if took:
        parts.append((took, "dim"))
    if unfolded:
        body = call_text.details(call, step.live)
        parts += _body(body, is_patch=call_text.is_patch(call))
        if step.steps:
            parts.append(text("\n" + _indented("\n".join(step.steps)), "$foreground 70%"))
        return Content.assemble(*parts)
    if call.state in ("asked", "running") and not step.is_stopped:
        for it in call_text.tail_of(step.live, _LIVE_LINES):
            parts.append(text(f"\n  │ {it}", "$foreground 60%"))
        if step.steps:
            parts.append(text("\n  └ " + one_line(step.steps[-1]), "$foreground 60%"))
    elif step.is_own:
        shown = call_text.bounded(call.output.rstrip("\n"), _OWN_LINES)
        parts.append(text("\n" + _indented(shown) if shown else "", "$foreground 80%"))
    elif step.steps:
        parts.append((f"  ({len(step.steps)} steps)", "dim"))
    return Content.assemble(*parts)


def _body(body: str, *, is_patch: bool) -> list[Content]:
    """The details of a call, line by line; a patch has its colours."""
    styles = {"+": "$success", "-": "$error", "@": "$secondary"} if is_patch else {}
    return [text(f"\n  │ {it}", styles.get(it[:1], "$foreground 80%")) for it in body.split("\n")]


def _indented(body: str) -> str:
    return "\n".join(f"  │ {it}" for it in body.split("\n"))
