"""Tool outputs besides text, and the wire form of any output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NotRequired, TypedDict


@dataclass(kw_only=True)
class ToolOutputText:
    """A text as the result of a tool."""

    type: Literal["text"] = "text"
    text: str
    """The text for the model."""

    def __post_init__(self) -> None:
        _require(isinstance(self.text, str), self, "text must be a str")


@dataclass(kw_only=True)
class ToolOutputImage:
    """An image as the result of a tool: a URL (also ``data:``) or an uploaded file.

    Example:
        @function_tool
        def chart(city: str) -> ToolOutputImage:
            return ToolOutputImage(image_url=f"https://example.com/{city}.png", detail="low")
    """

    type: Literal["image"] = "image"
    image_url: str | None = None
    """Where the image is; a ``data:`` URL contains it."""
    file_id: str | None = None
    """The id of an uploaded file, instead of a URL."""
    detail: Literal["low", "high", "auto"] | None = None
    """How closely the model looks at the image; ``None`` leaves it to the provider."""

    def __post_init__(self) -> None:
        has_source = self.image_url is not None or self.file_id is not None
        _require(has_source, self, "give image_url or file_id")
        detail_known = self.detail in (None, "low", "high", "auto")
        _require(detail_known, self, "detail is 'low', 'high' or 'auto'")


@dataclass(kw_only=True)
class ToolOutputFileContent:
    """A file as the result of a tool: base64 data, a URL or an uploaded file."""

    type: Literal["file"] = "file"
    file_data: str | None = None
    """The content of the file, in base64."""
    file_url: str | None = None
    """Where the file is, instead of its content."""
    file_id: str | None = None
    """The id of an uploaded file, instead of its content."""
    filename: str | None = None
    """The name that the model sees."""

    def __post_init__(self) -> None:
        has_source = any(v is not None for v in (self.file_data, self.file_url, self.file_id))
        _require(has_source, self, "give file_data, file_url or file_id")


class ToolOutputTextDict(TypedDict):
    """:class:`ToolOutputText` as a dict."""

    type: Literal["text"]
    """Always ``"text"``."""
    text: str
    """The text for the model."""


class ToolOutputImageDict(TypedDict):
    """:class:`ToolOutputImage` as a dict."""

    type: Literal["image"]
    """Always ``"image"``."""
    image_url: NotRequired[str]
    """Where the image is; a ``data:`` URL contains it."""
    file_id: NotRequired[str]
    """The id of an uploaded file, instead of a URL."""
    detail: NotRequired[Literal["low", "high", "auto"]]
    """How closely the model looks at the image; missing: the provider decides."""


class ToolOutputFileContentDict(TypedDict):
    """:class:`ToolOutputFileContent` as a dict."""

    type: Literal["file"]
    """Always ``"file"``."""
    file_data: NotRequired[str]
    """The content of the file, in base64."""
    file_url: NotRequired[str]
    """Where the file is, instead of its content."""
    file_id: NotRequired[str]
    """The id of an uploaded file, instead of its content."""
    filename: NotRequired[str]
    """The name that the model sees."""


_OUTPUT_FIELDS: dict[type[Any], tuple[str, ...]] = {
    ToolOutputText: ("text",),
    ToolOutputImage: ("image_url", "file_id", "detail"),
    ToolOutputFileContent: ("file_data", "file_url", "file_id", "filename"),
}
_OUTPUT_TYPES: dict[Any, type[Any]] = {
    "text": ToolOutputText,
    "image": ToolOutputImage,
    "file": ToolOutputFileContent,
}


def _require(condition: bool, output: object, problem: str) -> None:
    if not condition:
        raise ValueError(f"{type(output).__name__}: {problem}.")


def tool_output_to_wire(value: Any) -> str | list[dict[str, Any]]:
    """A tool's return value as the output of a function call in the Responses API.

    Texts are unchanged. The ``ToolOutput...`` classes (one, a list, or equal dicts) become input
    parts. Any other value becomes its ``str``.

    Args:
        value: What the tool returned.
    """
    if isinstance(value, str):
        return value
    values = value if isinstance(value, list | tuple) else [value]
    parts = [_part(each) for each in values]
    if not parts or not all(parts):
        return str(value)
    return [part for part in parts if part is not None]


def _part(value: Any) -> dict[str, Any] | None:
    if isinstance(value, dict):
        value = _from_dict(value)
    names = _OUTPUT_FIELDS.get(type(value))
    if names is None:
        return None
    present = {name: v for name in names if (v := getattr(value, name)) is not None}
    return {"type": f"input_{value.type}", **present}


def _from_dict(value: dict[str, Any]) -> Any | None:
    cls = _OUTPUT_TYPES.get(value.get("type")) if isinstance(value.get("type"), str) else None
    if cls is None:
        return None
    known = {name: value[name] for name in _OUTPUT_FIELDS[cls] if name in value}
    if any(v is not None and not isinstance(v, str) for v in known.values()):
        return None
    try:
        return cls(**known)
    except (TypeError, ValueError):
        return None
