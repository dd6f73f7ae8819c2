"""A command that a person runs in the sandbox with ``!``: shown in the transcript of this screen.
It is not part of the conversation, and the model does not see it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from sandstream._inspect.rows import Call
from sandstream.tui.conversation.box import Box

if TYPE_CHECKING:
    from sandstream.tui.conversation.screen import WorkScreen


class BoxCommand:
    """One command.

    Args:
        screen: Where it is shown.
        command: For the shell of the sandbox.
    """

    def __init__(self, screen: WorkScreen, command: str) -> None:
        self._screen = screen
        arguments = msgspec.json.encode({"cmd": command}).decode()
        self._command = command
        self._call = Call(name="exec_command", arguments=arguments, state="running")

    async def run(self, box: Box) -> None:
        """Run it, and show its output as it comes.

        Args:
            box: The sandbox.
        """
        transcript = self._screen.transcript
        transcript.own_call(self._call)
        self._screen.transcript_changed()

        def heard(text: str) -> None:
            transcript.own_output(self._call, text)
            self._screen.transcript_changed()

        done = await box.run(self._command, heard)
        self._call.state = "done" if done.exit_code == 0 else "failed"
        output = (done.stdout + done.stderr).decode("utf-8", "replace")
        how = f"exit code {done.exit_code}" if done.state == "exited" else done.state
        self._call.output = output if done.exit_code == 0 else f"{output.rstrip()}\n[{how}]"
        transcript.own_output(self._call, "")
        self._screen.transcript_changed()
