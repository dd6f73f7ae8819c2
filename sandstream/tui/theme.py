"""The look: themes, colours by meaning, and the marks of states.

A state has a mark and a word besides its colour, so that it can be read without colours.
"""

from __future__ import annotations

from textual.theme import Theme

DUNE = Theme(
    name="dune",
    primary="#d9a05b",
    secondary="#7fb4ca",
    accent="#e6c384",
    foreground="#dcd7ba",
    background="#16161d",
    surface="#1f1f28",
    panel="#2a2a37",
    success="#98bb6c",
    warning="#e6c384",
    error="#e46876",
    dark=True,
    variables={"block-cursor-text-style": "none", "footer-key-foreground": "#d9a05b"},
)
PAPER = Theme(
    name="paper",
    primary="#8a5a17",
    secondary="#2b6d8a",
    accent="#a15c00",
    foreground="#2b2a27",
    background="#faf7f0",
    surface="#f1ece1",
    panel="#e6dfd0",
    success="#3f7a2f",
    warning="#9a6700",
    error="#b3261e",
    dark=False,
    variables={"block-cursor-text-style": "none"},
)
OWN = (DUNE, PAPER)
CYCLE = ("dune", "paper", "nord", "gruvbox", "catppuccin-mocha", "tokyo-night", "solarized-light")
"""The order of the key for the next theme. The palette offers all themes of Textual."""

MARKS = {
    "needs you": "?",
    "working": "●",
    "waiting": "○",
    "idle": "·",
    "paused": "‖",
    "sleeping": "z",
    "archived": "-",
    "destroyed": "x",
    "done": "✓",
    "failed": "✗",
    "cancelled": "⊘",
}
STYLES = {
    "needs you": "bold $warning",
    "working": "$secondary",
    "waiting": "$warning",
    "idle": "$foreground 70%",
    "paused": "$foreground 70%",
    "sleeping": "$foreground 60%",
    "archived": "$foreground 50%",
    "destroyed": "$foreground 50%",
    "done": "$success",
    "failed": "$error",
    "cancelled": "$warning",
}
