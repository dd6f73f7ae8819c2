"""Which traces are exported: OpenTelemetry's samplers, decided from ids and flags alone.

Nobody throws dice: a trace's id follows from its run, and a caller's decision comes with the run.
So every replica, at every time, comes to the same decision for every span of a trace. What is not
sampled is still kept in the store.
"""

from __future__ import annotations

from typing import Final, Literal, get_args

import msgspec
from sandstream_bus.trace_context import trace_id_of

SamplerName = Literal[
    "always_on",
    "always_off",
    "traceidratio",
    "parentbased_always_on",
    "parentbased_always_off",
    "parentbased_traceidratio",
]
SAMPLERS: tuple[SamplerName, ...] = get_args(SamplerName)

_PARENT_BASED: Final = "parentbased_"
_LOW_BITS: Final = 64


class Sampler(msgspec.Struct, frozen=True):
    """``ratio`` is the share of traces that the samplers by trace id keep."""

    name: SamplerName = "parentbased_always_on"
    ratio: float = 1.0

    def keeps(self, trace_id: str, *, sampled: bool, root: str = "") -> bool:
        """Is this trace exported?

        ``sampled`` is what the caller's ``traceparent`` says, and ``root`` the run at the top. A
        trace whose id follows from that run has no caller, so nobody has decided before.
        """
        name: str = self.name
        if name.startswith(_PARENT_BASED):
            if not sampled:
                return False
            if trace_id != trace_id_of(root):
                return True
            name = name.removeprefix(_PARENT_BASED)
        return name == "always_on" or (name == "traceidratio" and self._is_below(trace_id))

    def _is_below(self, trace_id: str) -> bool:
        """As OpenTelemetry's SDK for Python does it: callers and we pick the same traces."""
        low = int(trace_id, 16) & ((1 << _LOW_BITS) - 1)
        return low < round(self.ratio * (1 << _LOW_BITS))
