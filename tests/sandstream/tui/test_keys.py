"""The table of keys: bindings, help and the page agree; settings change it."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from support.sources import ROOT

from sandstream.exceptions import UserError
from sandstream.tui.answers import QuestionPanel
from sandstream.tui.app import SandstreamApp
from sandstream.tui.conversation.prompt import Prompt
from sandstream.tui.conversation.queue_screen import QueueScreen
from sandstream.tui.conversation.screen import WorkScreen
from sandstream.tui.conversation.turns_screen import TurnsScreen
from sandstream.tui.help import help_content
from sandstream.tui.keys import KEYS, name_of
from sandstream.tui.overview.screen import EntryList, ListScreen
from sandstream.tui.settings import TuiSettings, read_settings

OWNERS = {
    "everywhere": (SandstreamApp,),
    "list": (ListScreen, EntryList),
    "session": (WorkScreen, Prompt),
    "question": (QuestionPanel,),
    "queue": (QueueScreen,),
    "turns": (TurnsScreen,),
}
IN_THE_INPUT = {"newline", "complete", "history", "fold", "rewind"}
"""What the input does itself: no binding has them."""


@pytest.mark.parametrize("key", [it for it in KEYS if it.action not in IN_THE_INPUT])
def test_every_key_does_something(key: object) -> None:
    action = key.action.partition("(")[0]  # type: ignore[attr-defined]
    owners = OWNERS[key.place]  # type: ignore[attr-defined]
    assert any(hasattr(it, f"action_{action}") for it in owners)


def test_no_key_has_two_meanings_in_one_place() -> None:
    used = Counter((it.place, key) for it in KEYS for key in it.keys.split(","))
    assert [it for it, count in used.items() if count > 1] == []


def test_the_page_has_the_keys_and_commands_of_the_code() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "generate_tui.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_help_has_every_key() -> None:
    shown = help_content().plain
    assert [it for it in KEYS if it.shown not in shown or it.does not in shown] == []


def test_names_in_the_settings_are_unique() -> None:
    names = Counter(name for it in KEYS if (name := name_of(it)))
    assert max(names.values()) == 1


def test_settings_are_read_and_checked(tmp_path: Path) -> None:
    assert read_settings(tmp_path) == TuiSettings()
    file = tmp_path / "tui.toml"
    file.write_text('theme = "nord"\n[keys]\n"session.terminal" = "ctrl+n"\n')
    assert read_settings(tmp_path).keys == {"session.terminal": "ctrl+n"}
    for wrong in ("theme = 1", "thme = 'x'", "[keys]\n'session.send' = 'a'", "= ="):
        file.write_text(wrong)
        with pytest.raises(UserError, match=r"tui\.toml"):
            read_settings(tmp_path)


def test_a_terminal_that_cannot_move_its_cursor_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sandstream.cli", "tui"],
        env={"TERM": "dumb"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "TERM=dumb" in done.stderr


def test_the_command_line_starts_without_textual() -> None:
    program = (
        "import sys; from sandstream.cli.parser import build_parser; build_parser(['tui']);"
        "import sandstream.cli.commands.tui.command;"
        "print([it for it in sys.modules if it.startswith(('textual', 'rich'))])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
