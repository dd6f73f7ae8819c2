"""Functions as models see them, with literal schemas, and the way back into a call."""

import functools
from collections.abc import Callable
from enum import Enum
from typing import Annotated, Any, Literal, Optional

import pytest
from pydantic import BaseModel, Field

from sandstream._surface.docstrings import parse_docstring
from sandstream.exceptions import ModelBehaviorError, UserError
from sandstream.function_schema import function_schema
from sandstream.run_context import RunContextWrapper
from sandstream.tool_context import ToolContext


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Place(BaseModel):
    """Somewhere."""

    city: str
    zip_code: str | None = None


PLACE = {
    "type": "object",
    "title": "Place",
    "description": "Somewhere.",
    "properties": {
        "city": {"type": "string", "title": "City"},
        "zip_code": {"anyOf": [{"type": "string"}, {"type": "null"}], "title": "Zip Code"},
    },
    "required": ["city", "zip_code"],
    "additionalProperties": False,
}


def schema_of(func: Callable[..., Any], **options: Any) -> dict[str, Any]:
    return function_schema(func, **options).params_json_schema


def properties_of(func: Callable[..., Any], **options: Any) -> dict[str, Any]:
    properties: dict[str, Any] = schema_of(func, **options)["properties"]
    return properties


def call(func: Callable[..., Any], data: dict[str, Any], **options: Any) -> Any:
    schema = function_schema(func, **options)
    return schema.to_call_args(schema.params_pydantic_model(**data))


def test_types_defaults_and_docstring() -> None:
    def weather(city: str, days: int = 3, unit: Literal["C", "F"] = "C") -> str:
        """Look up the weather.

        Slow at night.

        Args:
            city: Name of the city,
                in English.
            days (int): How many days.

        Returns:
            A text.
        """
        return ""

    schema = function_schema(weather)
    assert (schema.name, schema.description) == (
        "weather",
        "Look up the weather.\n\nSlow at night.",
    )
    assert schema.return_annotation is str
    assert schema.params_json_schema == {
        "title": "weather_args",
        "type": "object",
        "properties": {
            "city": {
                "type": "string",
                "title": "City",
                "description": "Name of the city,\nin English.",
            },
            "days": {
                "type": "integer",
                "title": "Days",
                "default": 3,
                "description": "How many days.",
            },
            "unit": {"type": "string", "title": "Unit", "default": "C", "enum": ["C", "F"]},
        },
        "required": ["city", "days", "unit"],
        "additionalProperties": False,
    }


def test_not_strict_keeps_optional_parameters_optional() -> None:
    def f(a: int, b: dict[str, int], c: str | None = None) -> None: ...

    assert schema_of(f, strict_json_schema=False) == {
        "title": "f_args",
        "type": "object",
        "properties": {
            "a": {"type": "integer", "title": "A"},
            "b": {"type": "object", "title": "B", "additionalProperties": {"type": "integer"}},
            "c": {"anyOf": [{"type": "string"}, {"type": "null"}], "title": "C", "default": None},
        },
        "required": ["a", "b"],
    }


def test_no_parameters() -> None:
    def f() -> None: ...

    assert schema_of(f) == {
        "title": "f_args",
        "type": "object",
        "properties": {},
        "required": [],
        "additionalProperties": False,
    }


def test_models_enums_and_optionals() -> None:
    def f(a: Place, b: list[Place], c: Color = Color.RED, d: Optional[int] = None) -> None:  # noqa: UP045
        """F.

        Args:
            a: the place
        """

    schema = schema_of(f)
    assert schema["$defs"]["Place"] == PLACE
    assert schema["properties"] == {
        "a": {**PLACE, "description": "the place"},
        "b": {"type": "array", "title": "B", "items": {"$ref": "#/$defs/Place"}},
        "c": {"type": "string", "title": "Color", "enum": ["red", "blue"], "default": "red"},
        "d": {"anyOf": [{"type": "integer"}, {"type": "null"}], "title": "D"},
    }


def test_annotated_and_field() -> None:
    def f(
        a: Annotated[int, Field(ge=0, le=10, description="from Field")],
        b: Annotated[str, "from Annotated"],
        c: Annotated[int, "hidden"] = 2,
        d: int = Field(gt=1, description="from default"),
        e: int = Field(default=7),
    ) -> None:
        """F.

        Args:
            c: from docstring
        """

    integer = {"type": "integer"}
    assert properties_of(f) == {
        "a": {**integer, "title": "A", "minimum": 0, "maximum": 10, "description": "from Field"},
        "b": {"type": "string", "title": "B", "description": "from Annotated"},
        "c": {**integer, "title": "C", "default": 2, "description": "from docstring"},
        "d": {**integer, "title": "D", "exclusiveMinimum": 1, "description": "from default"},
        "e": {**integer, "title": "E", "default": 7},
    }
    assert call(f, {"a": 1, "b": "x", "d": 3}) == ([1, "x", 2, 3, 7], {})


def test_variadic_parameters() -> None:
    def f(a: int, *rest: Annotated[int, Field(ge=1)], flag: bool = False, **more: int) -> None: ...

    assert schema_of(f, strict_json_schema=False) == {
        "title": "f_args",
        "type": "object",
        "properties": {
            "a": {"type": "integer", "title": "A"},
            "rest": {"type": "array", "title": "Rest", "items": {"type": "integer", "minimum": 1}},
            "flag": {"type": "boolean", "title": "Flag", "default": False},
            "more": {
                "type": "object",
                "title": "More",
                "additionalProperties": {"type": "integer"},
            },
        },
        "required": ["a"],
        "additionalProperties": False,
    }
    data = {"a": 1, "rest": [2, 3], "flag": True, "more": {"z": 4}}
    assert call(f, data, strict_json_schema=False) == ([1, 2, 3], {"flag": True, "z": 4})
    with pytest.raises(ModelBehaviorError, match="'a'"):
        call(f, {"a": 1, "more": {"a": 2}}, strict_json_schema=False)
    with pytest.raises(UserError, match=r"\*\*more.*strict_mode=False"):
        function_schema(f)


def test_the_context_is_injected_and_hidden() -> None:
    def one(ctx: RunContextWrapper[Any], a: int) -> None: ...
    def two(ctx: "ToolContext[str]", a: "int") -> None: ...
    def three(ctx: Annotated[ToolContext, "x"], a: int) -> None: ...

    for func in (one, two, three):
        schema = function_schema(func)
        assert schema.takes_context
        assert schema.params_json_schema["required"] == ["a"]
        assert call(func, {"a": 5}) == ([5], {})


def test_a_context_in_the_wrong_place_is_an_error() -> None:
    def second(a: int, ctx: RunContextWrapper[Any]) -> None: ...
    def optional(ctx: RunContextWrapper[Any] | None, a: int) -> None: ...

    with pytest.raises(UserError, match=r"'ctx' of tool 'second'.*not the first"):
        function_schema(second)
    with pytest.raises(UserError, match=r"'ctx' of tool 'optional'.*context type alone"):
        function_schema(optional)


class Unknown: ...


def test_what_cannot_be_described_says_what_to_do() -> None:
    def opened(a: dict[str, int]) -> None: ...
    def unknown(a: Unknown) -> None: ...
    def function(a: Callable[[], int]) -> None: ...
    def missing(a: "NotThere") -> None: ...  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(UserError, match=r"'opened'.*#/properties/a.*strict_mode=False"):
        function_schema(opened)
    for func in (unknown, function):
        with pytest.raises(UserError, match=f"'{func.__name__}'.*Use plain types"):
            function_schema(func)
    with pytest.raises(UserError, match="NotThere"):
        function_schema(missing)
    for thing in (functools.partial(opened, {}), Unknown(), dict):
        with pytest.raises(UserError, match="Wrap it in a `def`"):
            function_schema(thing)  # type: ignore[arg-type]


def test_names_that_pydantic_reserves_work() -> None:
    def f(_a: int, schema: str, model_config: int = 1) -> None: ...

    assert properties_of(f) == {
        "_a": {"type": "integer", "title": "A"},
        "schema": {"type": "string", "title": "Schema"},
        "model_config": {"type": "integer", "title": "Model Config", "default": 1},
    }
    assert call(f, {"_a": 1, "schema": "s"}) == ([1, "s", 1], {})


def test_overrides_and_no_docstring_info() -> None:
    def f(a: Annotated[int, "the a"], b: int) -> None:
        """Text.

        Args:
            b: the b
        """

    schema = function_schema(f, name_override="g", description_override="other")
    assert (schema.name, schema.description) == ("g", "other")
    assert schema.params_json_schema["title"] == "g_args"
    bare = function_schema(f, use_docstring_info=False)
    assert bare.description is None
    assert bare.params_json_schema["properties"]["a"]["description"] == "the a"
    assert "description" not in bare.params_json_schema["properties"]["b"]


NUMPY = """Summary.

Parameters
----------
a : int
    The a.

    More.
b, c : str, optional
    Both.

Returns
-------
int
"""
SPHINX = """Summary.

:param int a: The a.

    More.
:param b: Both.
:param c: Both.
:returns: x
"""
GOOGLE = """Summary.

Args:
    a (int): The a.

        More.
    b: Both.
    c: Both.

Note:
    Not for the model.

Nor is this.
"""


@pytest.mark.parametrize(
    ("style", "text"), [("numpy", NUMPY), ("sphinx", SPHINX), ("google", GOOGLE)]
)
def test_docstring_styles(style: Any, text: str) -> None:
    for given in (style, None):
        doc = parse_docstring(text, given)
        assert doc.description == "Summary."
        assert doc.params == {"a": "The a.\n\nMore.", "b": "Both.", "c": "Both."}


def test_docstring_edges() -> None:
    assert parse_docstring(None).description is None
    assert parse_docstring("   ").description is None
    text = "S.\n\nUse it for:\n\n    code()\n\nEnd."
    assert parse_docstring(text).description == text
    assert parse_docstring("S.\n\nArgs:\nnothing").description == "S.\n\nArgs:\nnothing"
    assert parse_docstring("S.\n\nArgs:\n    *args: va\n    **kw: k").params == {
        "args": "va",
        "kw": "k",
    }
    with pytest.raises(ValueError, match="google, numpy, sphinx"):
        parse_docstring("x", "epytext")  # type: ignore[arg-type]
