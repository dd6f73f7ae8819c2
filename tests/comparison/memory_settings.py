"""Settings of memories, made with one SDK or the other: what comes of each.

`python -m comparison.memory_settings agents` writes what the peer makes of them as JSON; we import
the rest.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from typing import Any

Made = Callable[[Any], Any]
"""Given an SDK's names, something made with them."""

SETTINGS: dict[str, Made] = {
    "layout": lambda sdk: vars(sdk.Memory().layout),
    "read": lambda sdk: vars(sdk.Memory().read),
    "models": lambda sdk: [_models(sdk.Memory().generate)],
    "reasoning": lambda sdk: [
        sdk.Memory().generate.phase_one_model_settings.reasoning.effort,
        sdk.Memory().generate.phase_two_model_settings.reasoning.effort,
    ],
    "limits": lambda sdk: [
        sdk.Memory().generate.max_raw_memories_for_consolidation,
        sdk.Memory().generate.phase_two_max_turns,
        sdk.Memory().generate.extra_prompt,
    ],
    "in order": lambda sdk: _models(
        sdk.MemoryGenerateConfig(3, "one", None, "two", None, "extra", 7)
    ),
    "type": lambda sdk: sdk.Memory().type,
    "needs": lambda sdk: sorted(sdk.Memory().required_capability_types()),
    "needs without updates": lambda sdk: sorted(
        sdk.Memory(read=sdk.MemoryReadConfig(live_update=False)).required_capability_types()
    ),
    "needs without reading": lambda sdk: sorted(sdk.Memory(read=None).required_capability_types()),
    "not a default": lambda sdk: [it.type for it in sdk.Capabilities.default()],
    "clone": lambda sdk: _clone(sdk.Memory()),
    "dicts": lambda sdk: vars(sdk.Memory(layout={"memories_dir": "m"}).layout),
    "settings as dict": lambda sdk: (
        sdk.MemoryGenerateConfig(
            phase_one_model_settings={"temperature": 0.5}
        ).phase_one_model_settings.temperature
    ),
    "most": lambda sdk: sdk.MemoryGenerateConfig(4096).max_raw_memories_for_consolidation,
    "too many": lambda sdk: sdk.MemoryGenerateConfig(4097),
    "too few": lambda sdk: sdk.MemoryGenerateConfig(0),
    "unknown setting": lambda sdk: sdk.MemoryGenerateConfig(phase_one_model_settings={"nope": 1}),
    "nothing at all": lambda sdk: sdk.Memory(read=None, generate=None),
    "absolute": lambda sdk: _laid_out(sdk, memories_dir="/m"),
    "outside": lambda sdk: _laid_out(sdk, sessions_dir="a/../../b"),
    "empty": lambda sdk: _laid_out(sdk, memories_dir=""),
    "root": lambda sdk: _laid_out(sdk, sessions_dir="."),
    "nested": lambda sdk: _laid_out(sdk, memories_dir="a/b", sessions_dir="a/c"),
    "a bool for reading": lambda sdk: sdk.Memory(read=True),
}


def _models(config: Any) -> list[Any]:
    return [config.phase_one_model, config.phase_two_model, config.extra_prompt]


def _clone(memory: Any) -> list[bool]:
    clone = memory.clone()
    return [
        clone is memory,
        clone.layout is memory.layout,
        clone.read is memory.read,
        clone.generate is memory.generate,
    ]


def _laid_out(sdk: Any, **directories: str) -> dict[str, str]:
    found: dict[str, str] = vars(sdk.Memory(layout=sdk.MemoryLayoutConfig(**directories)).layout)
    return found


class Names:
    """The names that the settings use, of one SDK."""

    def __init__(self, sdk: str) -> None:
        for module in ("sandbox", "sandbox.capabilities"):
            found = importlib.import_module(f"{sdk}.{module}")
            self.__dict__.update({name: getattr(found, name) for name in found.__all__})


def outcomes(sdk: str) -> dict[str, Any]:
    """What comes of each setting: a value, or which kind of error."""
    names = Names(sdk)
    found: dict[str, Any] = {}
    for title, make in SETTINGS.items():
        try:
            found[title] = make(names)
        except (ValueError, TypeError) as error:
            found[title] = "TypeError" if isinstance(error, TypeError) else "ValueError"
    told: dict[str, Any] = json.loads(json.dumps(found))
    return told


if __name__ == "__main__":
    print(json.dumps(outcomes(sys.argv[1])))
