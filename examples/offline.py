"""A scripted model, for use without a key. Your own programs do not need this file.

With OPENAI_API_KEY or OPENAI_BASE_URL set, it does nothing and the example uses that model.
Otherwise a scripted server on loopback, over real HTTP, answers with the given steps.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from sandstream.testing import Conversation, ScriptedModel
from sandstream.testing.steps import Step


@contextmanager
def model_or_script(*steps: Step, conversations: Sequence[Conversation] = ()) -> Iterator[None]:
    """Answer a conversation with these steps, unless there is a real model. With several agents,
    each conversation has its own script, found by words of its first message.
    """
    if os.environ.get("OPENAI_API_KEY") or os.environ.get("OPENAI_BASE_URL"):
        yield
        return
    with ScriptedModel(
        default=steps or None, conversations=conversations, strict=False
    ) as scripted:
        os.environ["OPENAI_BASE_URL"] = scripted.base_url
        try:
            yield
        finally:
            del os.environ["OPENAI_BASE_URL"]
