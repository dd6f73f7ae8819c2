"""One answer that is being written: what the writers of both APIs need.

Owns the ids, the token estimate and the splitting of texts into deltas. Knows neither API.
"""

import re
import time
from itertools import pairwise

import msgspec

from sandstream.testing.request_reader import Json
from sandstream.testing.steps import Answer, CustomToolCall, Reasoning, Step, ToolCall, Usage

_WORDS = re.compile(r"\s*\S+|\s+$")


class Turn(msgspec.Struct, kw_only=True):
    """A request that is being answered."""

    body: Json
    body_bytes: int
    step: Step
    answer: Answer
    unique: str
    """24 hexadecimal digits that are unique to this answer."""
    call_prefix: str
    response_prefix: str = ""
    created_at: int = msgspec.field(default_factory=lambda: int(time.time()))

    @property
    def response_id(self) -> str:
        return f"resp_{self.response_prefix}{self.unique}"

    def item_id(self, kind: str, index: int) -> str:
        return f"{kind}_{self.unique}{index:04x}"

    def call_id(self, call: ToolCall | CustomToolCall, index: int) -> str:
        return call.call_id or f"{self.call_prefix}{index:02x}"

    def usage(self) -> Usage:
        """The step's token counts, or about one token per four characters."""
        if self.answer.usage is not None:
            return self.answer.usage
        said = thought = 0
        for item in self.answer.items:
            if isinstance(item, Reasoning):
                thought += len(item.text) // 4 + 1
            elif isinstance(item, ToolCall):
                said += (len(item.name) + len(item.arguments_text)) // 4 + 1
            elif isinstance(item, CustomToolCall):
                said += (len(item.name) + len(item.input)) // 4 + 1
            else:
                said += len(item.text) // 4 + 1
        return Usage(
            input_tokens=self.body_bytes // 4 + 1,
            output_tokens=said + thought,
            reasoning_tokens=thought,
        )

    def deltas(self, text: str) -> list[str]:
        """Split a text for streaming: into the step's number of pieces, or word by word."""
        count = self.step.pieces
        if count is None:
            return _WORDS.findall(text)
        count = max(1, min(count, len(text)))
        size, longer = divmod(len(text), count)
        cuts = [index * size + min(index, longer) for index in range(count + 1)]
        return [text[a:b] for a, b in pairwise(cuts) if b > a]
