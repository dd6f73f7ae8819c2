"""Which traces are exported: OpenTelemetry's samplers, decided from ids and flags alone.

Nothing is random: a trace's id is derived from its run, and a caller's decision comes with the run.
So every replica always makes the same decision for all spans of a trace. Traces that are not
sampled are still stored.
"""

from __future__ import annotations

from typing import Final, Literal, get_args

import msgspec
from sandstream_bus.wire.trace_context import trace_id_of

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
        """Whether to export this trace.

        ``sampled`` is the flag of the caller's ``traceparent``, ``root`` the run at the top. A
        trace whose id is derived from that run has no caller, so no decision was made before.
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
        """Same algorithm as OpenTelemetry's Python SDK, so callers and we pick the same traces."""
        low = int(trace_id, 16) & ((1 << _LOW_BITS) - 1)
        return low < round(self.ratio * (1 << _LOW_BITS))
