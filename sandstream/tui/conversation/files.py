"""The files of the sandbox, for completion: from the box while it is open, else from its last
checkpoint. The list is kept for a few seconds.
"""

from __future__ import annotations

import time

from sandstream.sessions import SessionInfo
from sandstream.tui.conversation.box import box_of, saved_files
from sandstream.tui.conversation.work import Work

_FRESH_S = 5.0


class FileIndex:
    """The paths of one workspace.

    Args:
        work: The session or run.
    """

    def __init__(self, work: Work) -> None:
        self._work = work
        self._known: list[str] = []
        self._read_at = float("-inf")
        self._tree = ""

    async def all(self, info: SessionInfo | None) -> list[str]:
        """All paths.

        Args:
            info: The state of the session; None for a run.

        Raises:
            UserError: There is no sandbox.
        """
        if time.monotonic() - self._read_at < _FRESH_S:
            return self._known
        if info is not None and info.box != "open":  # asking for files must not wake a session
            if info.checkpoint and info.checkpoint != self._tree:
                self._known = await saved_files(self._work.client, info.checkpoint)
                self._tree = info.checkpoint
        else:
            box = await box_of(self._work, info)
            self._known = await box.files()
            self._tree = ""
        self._read_at = time.monotonic()
        return self._known
