"""The transcript on the screen: a window of widgets over all blocks.

Only the blocks near the view have widgets, so that a transcript of any length scrolls. The window
moves when its edge comes into view. Changes are shown together, many times a second at most.
"""

from __future__ import annotations

import asyncio
import time
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.message import Message
from textual.widgets import Static

from sandstream.tui.conversation.block_views import BlockView, view_of
from sandstream.tui.conversation.blocks import (
    AgentText,
    AnyBlock,
    CallStep,
    Note,
    Thought,
    TurnHead,
    UserText,
)
from sandstream.tui.conversation.transcript import Transcript
from sandstream.tui.plain_text import line

_SPARE = 20
"""How many more blocks have widgets than there are lines on the screen. Each widget costs time
whenever another one grows.
"""
_STEP = 30
"""How many blocks are added when an edge of the window comes into view."""
_FRAME_S = 0.05
OF_BLOCKS = ("j", "k", " ")
"""Characters that move between blocks and unfold them; others go to the input."""


class TranscriptView(VerticalScroll):
    """Shows a transcript and follows its end, unless a person has scrolled away.

    Args:
        transcript: What it shows. Call :meth:`refresh_soon` after each change.
    """

    can_focus = True
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space,enter", "screen.fold", "Unfold", key_display="Space"),
        Binding("j,down", "screen.block(1)", show=False),
        Binding("k,up", "screen.block(-1)", show=False),
        Binding("left", "screen.back", show=False),
        Binding("escape", "screen.unselect", "Input", key_display="Esc"),
    ]
    """While a block is selected."""

    class Followed(Message):
        """The view follows the end again, or no longer."""

    def __init__(self, transcript: Transcript) -> None:
        super().__init__(id="transcript")
        self.transcript = transcript
        self.is_following = True
        self.unfold_all = False
        self.cursor: int | None = None
        """The place of the selected block in the transcript."""
        self._first = 0
        self._end = 0
        """The window is from ``_first`` up to, and without, ``_end``."""
        self._views: dict[int, BlockView] = {}
        self._turn = asyncio.Lock()
        self._is_due = False
        self._shown_at = float("-inf")
        self._shown_earlier = -1
        self._known_end = 0
        """How many blocks there were when changes were last shown."""
        self._unfolded: set[int] = set()
        self._edge = Static("", id="edge", markup=False)

    def compose(self) -> ComposeResult:
        yield self._edge

    def on_mount(self) -> None:
        self.anchor()

    # --- changes -------------------------------------------------------------------------------

    def refresh_soon(self) -> None:
        """Show what has changed, together with what changes until then."""
        if self._is_due:
            return
        self._is_due = True
        rest_s = self._shown_at + _FRAME_S - time.monotonic()
        if rest_s > 0:
            self.set_timer(rest_s, self._show_changes)
        else:  # after a pause, what comes first is shown at once
            self.call_next(self._show_changes)

    async def _show_changes(self) -> None:
        self._is_due = False
        self._shown_at = time.monotonic()
        if not self.is_attached:
            return
        if self._views and self._end >= self._known_end:
            self._look_for_end()
        self._known_end = len(self.transcript.blocks)
        async with self._turn:
            changed = self.transcript.changes()
            blocks = self.transcript.blocks
            with self.app.batch_update():
                for block in changed:
                    if (view := self._views.get(block.key)) is not None:
                        await view.show()
                if self.is_following and self._end < len(blocks):
                    if len(blocks) - self._end > self._window:  # more than a window has come
                        await self._start_at(len(blocks) - self._window)
                    await self._append(len(blocks) - self._end)
                    await self._trim_top(self._window + _STEP)
                self._show_edge()

    @property
    def _window(self) -> int:
        """How many blocks have widgets, at the end of the transcript."""
        return self.app.size.height + _SPARE

    def _show_edge(self) -> None:
        earlier = self._first
        if earlier == self._shown_earlier:
            return
        self._shown_earlier = earlier
        self._edge.update(line(f"↑ {earlier} earlier blocks" if earlier else "", "$foreground 50%"))
        self._edge.display = earlier > 0

    # --- the window ----------------------------------------------------------------------------

    async def _append(self, count: int) -> None:
        """Add the next blocks at the bottom of the window."""
        blocks = self.transcript.blocks[self._end : self._end + count]
        self._end += len(blocks)
        await self.mount_all([self._view(it) for it in blocks])

    def _view(self, block: AnyBlock) -> BlockView:
        unfolded = (self.unfold_all) != (block.key in self._unfolded)
        view = self._views[block.key] = view_of(block, unfolded=unfolded)
        return view

    async def _start_at(self, place: int) -> None:
        """Begin an empty window there."""
        views = list(self._views.values())
        self._views.clear()
        self._first = self._end = max(0, place)
        await self.remove_children(views)

    async def _trim_top(self, most: int) -> None:
        surplus = self._end - self._first - most
        if surplus <= 0:
            return
        gone = self.transcript.blocks[self._first : self._first + surplus]
        self._first += surplus
        await self.remove_children([self._views.pop(it.key) for it in gone])

    async def _trim_bottom(self, most: int) -> None:
        surplus = self._end - self._first - most
        if surplus <= 0:
            return
        gone = self.transcript.blocks[self._end - surplus : self._end]
        self._end -= surplus
        await self.remove_children([self._views.pop(it.key) for it in gone])

    async def _grow_up(self) -> None:
        """Add earlier blocks, and keep what is in view where it is."""
        async with self._turn:
            if self._first == 0:
                return
            start = max(0, self._first - _STEP)
            before = self.virtual_size.height
            views = [self._view(it) for it in self.transcript.blocks[start : self._first]]
            self._first = start
            with self.app.batch_update():
                await self.mount_all(views, after=self._edge)
                await self._trim_bottom(self._window + 3 * _STEP)
                self._show_edge()

            def keep() -> None:
                grown = self.virtual_size.height - before
                self.scroll_to(y=self.scroll_y + max(0, grown), animate=False)

            self.call_after_refresh(keep)

    async def _grow_down(self) -> None:
        async with self._turn:
            with self.app.batch_update():
                await self._append(_STEP)
                await self._trim_top(self._window + 3 * _STEP)
                self._show_edge()

    # --- scrolling -----------------------------------------------------------------------------

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        if not self._views:
            return
        self._look_for_end()
        if new_value <= 2 and new_value < old_value and self._first > 0:
            self.run_worker(self._grow_up(), group="window", exclusive=True)
        elif self._is_at_end and new_value > old_value and self._end < len(self.transcript.blocks):
            self.run_worker(self._grow_down(), group="window", exclusive=True)

    @property
    def _is_at_end(self) -> bool:
        return self.max_scroll_y - self.scroll_y <= 1

    def release_anchor(self) -> None:
        """A person scrolls: stay where they are."""
        super().release_anchor()
        self._set_following(False)

    def _look_for_end(self) -> None:
        """Follow again if the end is in view."""
        if self._is_at_end and self._end >= self._known_end:
            self._set_following(True)

    def _set_following(self, following: bool) -> None:
        if following != self.is_following:
            self.is_following = following
            if following:
                self.refresh_soon()
            self.post_message(self.Followed())

    async def go_to_end(self) -> None:
        """Show the last blocks, and follow."""
        self._set_following(True)
        async with self._turn:
            blocks = self.transcript.blocks
            if self._end < len(blocks):
                await self._start_at(len(blocks) - self._window)
                await self._append(self._window)
                self._show_edge()
        self.cursor = None
        self._mark()
        self.anchor()
        self.scroll_end(animate=False)

    async def go_to(self, place: int) -> None:
        """Show the block at a place of the transcript, and select it.

        Args:
            place: Its index.
        """
        self._set_following(False)
        async with self._turn:
            if not self._first <= place < self._end:
                await self._start_at(place - _STEP)
                await self._append(self._window)
                self._show_edge()
        self.cursor = place
        self._mark()
        view = self._views.get(self.transcript.blocks[place].key)
        if view is not None:
            self.call_after_refresh(self.scroll_to_widget, view, animate=False, center=True)

    # --- selection and folds -------------------------------------------------------------------

    async def move(self, step: int) -> None:
        """Select the block above or below.

        Args:
            step: -1 or 1.
        """
        blocks = self.transcript.blocks
        if not blocks:
            return
        place = len(blocks) if self.cursor is None else self.cursor
        place = min(len(blocks) - 1, max(0, place + step))
        if self.cursor == place == len(blocks) - 1 and step > 0:
            await self.go_to_end()
            return
        await self.go_to(place)

    def _mark(self) -> None:
        key = None if self.cursor is None else self.transcript.blocks[self.cursor].key
        for it, view in self._views.items():
            view.set_class(it == key, "-selected")

    async def fold(self) -> None:
        """Unfold or fold the selected block; without one, the last call."""
        place = self.cursor
        if place is None:
            places = range(len(self.transcript.blocks) - 1, -1, -1)
            place = next(
                (it for it in places if isinstance(self.transcript.blocks[it], CallStep)), None
            )
        if place is None:
            return
        key = self.transcript.blocks[place].key
        self._unfolded ^= {key}
        if (view := self._views.get(key)) is not None:
            await view.fold(not view.unfolded)

    async def fold_all(self) -> None:
        """Unfold or fold all blocks."""
        self.unfold_all = not self.unfold_all
        self._unfolded.clear()
        with self.app.batch_update():
            for view in list(self._views.values()):
                await view.fold(self.unfold_all)

    def selected_text(self) -> str:
        """The text of the selected block; without one, the last answer."""
        if self.cursor is None:
            return self.transcript.last_answer
        return text_of(self.transcript.blocks[self.cursor])

    def find(self, wanted: str, *, after: int | None = None) -> int | None:
        """The place of the nearest block before ``after`` with a text; it goes on from the end.

        Args:
            wanted: A part of its text; upper and lower case are the same.
            after: A place; None: the end of the transcript.
        """
        blocks = self.transcript.blocks
        start = len(blocks) if after is None else after
        order = [*range(start - 1, -1, -1), *range(len(blocks) - 1, start - 1, -1)]
        wanted = wanted.casefold()
        return next((it for it in order if wanted in text_of(blocks[it]).casefold()), None)


def text_of(block: AnyBlock) -> str:
    """The text of a block, as it is searched and copied."""
    match block:
        case UserText() | AgentText() | Thought() | Note():
            return block.text
        case CallStep():
            return f"{block.call.name} {block.call.arguments}\n{block.call.output or block.live}"
        case TurnHead():
            return f"turn {block.turn}"
