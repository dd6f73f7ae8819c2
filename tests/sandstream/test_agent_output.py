"""Output types: schema, wrapping, validation by pydantic and by msgspec."""

from dataclasses import dataclass
from typing import Any, Literal, NotRequired

import msgspec
import pytest
from pydantic import BaseModel
from typing_extensions import TypedDict

from sandstream.agent_output import AgentOutputSchema, AgentOutputSchemaBase
from sandstream.exceptions import ModelBehaviorError, UserError


class Model(BaseModel):
    x: int
    y: str | None = None


@dataclass
class Data:
    x: int
    y: str = "q"


class Typed(TypedDict):
    x: int
    y: NotRequired[str]


class Step(msgspec.Struct):
    title: str
    minutes: int = 5


class Plan(msgspec.Struct):
    """A plan."""

    goal: str
    steps: list[Step]


class Tree(msgspec.Struct):
    value: int
    children: list["Tree"] = []


class Unknown: ...


def wrapped(response: dict[str, Any]) -> dict[str, Any]:
    return {
        "title": "OutputType",
        "type": "object",
        "properties": {"response": response},
        "required": ["response"],
        "additionalProperties": False,
    }


def schema(tp: Any, **options: Any) -> dict[str, Any]:
    return AgentOutputSchema(tp, **options).json_schema()


@pytest.mark.parametrize("tp", [None, str])
def test_plain_text(tp: Any) -> None:
    output = AgentOutputSchema(tp)
    assert output.is_plain_text()
    assert output.validate_json("not json") == "not json"
    with pytest.raises(UserError, match="plain text"):
        output.json_schema()


def test_a_model_is_not_wrapped() -> None:
    assert schema(Model) == {
        "title": "Model",
        "type": "object",
        "properties": {
            "x": {"type": "integer", "title": "X"},
            "y": {"anyOf": [{"type": "string"}, {"type": "null"}], "title": "Y"},
        },
        "required": ["x", "y"],
        "additionalProperties": False,
    }
    assert AgentOutputSchema(Model).validate_json('{"x":1,"y":null}') == Model(x=1)


def test_a_typed_dict_is_not_wrapped() -> None:
    assert schema(Typed)["required"] == ["x", "y"]
    assert AgentOutputSchema(Typed).validate_json('{"x":1}') == {"x": 1}


def test_a_dataclass_is_wrapped() -> None:
    output = AgentOutputSchema(Data)
    assert output.json_schema()["properties"] == {"response": {"$ref": "#/$defs/Data"}}
    assert output.validate_json('{"response":{"x":1,"y":"z"}}') == Data(1, "z")
    with pytest.raises(ModelBehaviorError):
        output.validate_json('{"x":1,"y":"z"}')


@pytest.mark.parametrize(
    ("tp", "inner", "text", "value", "name"),
    [
        (int, {"type": "integer"}, "3", 3, "int"),
        (float, {"type": "number"}, "1", 1.0, "float"),
        (list[int], {"type": "array", "items": {"type": "integer"}}, "[1]", [1], "list[int]"),
        (
            Literal["a", "b"],
            {"type": "string", "enum": ["a", "b"]},
            '"a"',
            "a",
            "Literal['a', 'b']",
        ),
        (
            int | None,
            {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            "null",
            None,
            "UnionType[int, NoneType]",
        ),
    ],
)
def test_scalars_and_generics_are_wrapped(
    tp: Any, inner: dict[str, Any], text: str, value: Any, name: str
) -> None:
    output = AgentOutputSchema(tp)
    assert output.json_schema() == wrapped({**inner, "title": "Response"})
    assert output.validate_json(f'{{"response":{text}}}') == value
    assert output.name() == name


def test_strict_types_are_not_coerced_and_loose_ones_are() -> None:
    with pytest.raises(ModelBehaviorError):
        AgentOutputSchema(Model).validate_json('{"x":"1"}')
    loose = AgentOutputSchema(Model, strict_json_schema=False)
    assert not loose.is_strict_json_schema()
    assert loose.validate_json('{"x":"1"}') == Model(x=1)


def test_errors_do_not_show_what_the_model_said(monkeypatch: pytest.MonkeyPatch) -> None:
    output = AgentOutputSchema(Model)
    with pytest.raises(ModelBehaviorError) as caught:
        output.validate_json('{"x":"secret"}')
    assert str(caught.value) == "Invalid JSON when parsing model output for Model"
    assert caught.value.__suppress_context__
    monkeypatch.setenv("OPENAI_AGENTS_DONT_LOG_MODEL_DATA", "0")
    with pytest.raises(ModelBehaviorError, match="secret"):
        output.validate_json('{"x":"secret"}')


def test_a_type_that_cannot_be_strict_names_the_way_out() -> None:
    way_out = r"AgentOutputSchema\(dict\[str, int\], strict_json_schema=False\)"
    with pytest.raises(UserError, match=way_out):
        AgentOutputSchema(dict[str, int])
    loose = AgentOutputSchema(dict[str, int], strict_json_schema=False)
    assert loose.validate_json('{"a":1}') == {"a": 1}


def test_an_unknown_type_is_a_user_error() -> None:
    with pytest.raises(UserError, match="Unknown cannot be described"):
        AgentOutputSchema(Unknown)


STEP = {
    "title": "Step",
    "type": "object",
    "properties": {"title": {"type": "string"}, "minutes": {"type": "integer", "default": 5}},
    "required": ["title", "minutes"],
    "additionalProperties": False,
}


def test_a_struct_is_not_wrapped_and_self_contained() -> None:
    assert schema(Plan) == {
        "title": "Plan",
        "description": "A plan.",
        "type": "object",
        "properties": {
            "goal": {"type": "string"},
            "steps": {"type": "array", "items": {"$ref": "#/$defs/Step"}},
        },
        "required": ["goal", "steps"],
        "additionalProperties": False,
        "$defs": {"Step": STEP},
    }
    assert schema(Step) == STEP
    text = '{"goal":"g","steps":[{"title":"t","minutes":1}]}'
    assert AgentOutputSchema(Plan).validate_json(text) == Plan("g", [Step("t", 1)])


def test_structs_inside_generics_are_wrapped() -> None:
    output = AgentOutputSchema(list[Step])
    assert output.json_schema()["properties"] == {
        "response": {"type": "array", "items": {"$ref": "#/$defs/Step"}}
    }
    assert output.validate_json('{"response":[{"title":"t"}]}') == [Step("t")]


def test_a_recursive_struct_keeps_its_definition() -> None:
    output = AgentOutputSchema(Tree)
    assert output.json_schema()["properties"]["children"]["items"] == {"$ref": "#/$defs/Tree"}
    assert output.json_schema()["$defs"]["Tree"]["required"] == ["value", "children"]
    assert output.validate_json('{"value":1,"children":[{"value":2}]}') == Tree(1, [Tree(2)])


@pytest.mark.parametrize("text", ["nope", '{"goal":1,"steps":[]}', "[]", ""])
def test_a_struct_that_does_not_fit_is_model_behavior(text: str) -> None:
    with pytest.raises(ModelBehaviorError, match="for Plan"):
        AgentOutputSchema(Plan).validate_json(text)


def test_a_format_of_ones_own() -> None:
    class Shout(AgentOutputSchemaBase):
        def is_plain_text(self) -> bool:
            return False

        def name(self) -> str:
            return "shout"

        def json_schema(self) -> dict[str, Any]:
            return {"type": "object"}

        def is_strict_json_schema(self) -> bool:
            return False

        def validate_json(self, json_str: str) -> Any:
            return json_str.upper()

    assert Shout().validate_json("hey") == "HEY"
