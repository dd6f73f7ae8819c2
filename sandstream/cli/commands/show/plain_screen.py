"""Screens that cannot show every sign: a page in ASCII, or in what their encoding has."""

from __future__ import annotations

from sandstream.cli.terminal.render import Screen, out

_SIGNS = str.maketrans(
    {
        **dict.fromkeys("█▉▊▋▌▐", "#"),
        **dict.fromkeys("▍▎▏▕", "|"),
        **dict.fromkeys("━╸╺", "="),
        "┄": "-",
        "─": "_",
        "░": ".",
        "▒": "%",
        **dict(zip("▁▂▃▄▅▆▇", "..:-+*#", strict=True)),
        **dict.fromkeys("│┊⋮", "|"),
        **dict.fromkeys("├└", "+"),
        "▸": ">",
        "→": ">",
        "←": "<",
        "×": "x",
        "·": "-",
        "✗": "!",
        "…": "~",
    }
)
"""Sign for sign, so that columns stay columns."""


class PlainScreen(Screen):
    """Writes what the stream's encoding has, and signs of ASCII for ours."""

    def line(self, text: str = "") -> None:
        encoding = self.stream.encoding or "ascii"
        plain = text.translate(_SIGNS)
        super().line(plain.encode(encoding, "replace").decode(encoding))


def page_screen() -> Screen:
    """Stdout, with ASCII in place of characters that its encoding lacks."""
    screen = out()
    try:
        "█░▒┄━├→✗…".encode(screen.stream.encoding or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return PlainScreen(screen.stream)
    return screen
