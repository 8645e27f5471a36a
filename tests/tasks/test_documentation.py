"""The help of a class and its parameters, as a person wrote it."""

from pathlib import Path
from typing import Annotated

from tenuto import Config, Meta, Param, PathGenerator, Task, describe_config, field, help


class Base(Config):
    """A base.

    :param shared: told in the docstring
    """

    shared: Param[int]
    changed: Param[int] = 1
    """told by the base"""


class Documented(Task, Base):
    """Trains a model.

    It does so step by step,
    over several lines.

    :param told: how it is told,
        over two lines
    :param both: not this one
    """

    told: Param[int]
    after: Param[list[int]] = [1, 2]
    """A string after the attribute.

    Of several lines.
    """
    both: Param[str] = field(default="b", help="field wins")
    """neither this one"""
    hinted: Annotated[Param[float], help("as a hint")] = 0.5
    silent: Param[int | None] = None
    changed: Param[int] = 2
    """told by the child"""
    model: Meta[Path] = field(default_factory=PathGenerator("model.pt"))
    not_a_parameter: int = 3
    """help of nothing"""


def test_the_help_of_a_class_is_its_docstring() -> None:
    told = describe_config(Documented)
    assert told.id == f"{__name__}.Documented"
    assert told.title == "Trains a model."
    assert told.description == "It does so step by step,\nover several lines."


def test_the_help_of_a_parameter_is_found_wherever_it_is_written() -> None:
    parameters = describe_config(Documented).parameters
    assert {name: parameter.help for name, parameter in parameters.items()} == {
        "shared": "told in the docstring",
        "changed": "told by the child",
        "told": "how it is told, over two lines",
        "after": "A string after the attribute.\n\nOf several lines.",
        "both": "field wins",
        "hinted": "as a hint",
        "silent": "",
        "model": "",
    }


def test_types_and_defaults_are_told() -> None:
    parameters = describe_config(Documented).parameters
    assert {name: (p.type, p.required, p.default) for name, p in parameters.items()} == {
        "shared": ("int", True, ""),
        "changed": ("int", False, "2"),
        "told": ("int", True, ""),
        "after": ("list[int]", False, "[1, 2]"),
        "both": ("str", False, "'b'"),
        "hinted": ("float", False, "0.5"),
        "silent": ("int | None", False, "None"),
        "model": ("Path", False, "model.pt in the job's directory"),
    }


def test_the_config_class_has_the_same_help() -> None:
    assert describe_config(Documented.C) == describe_config(Documented)


def test_a_class_in_a_function_and_one_without_source_have_help() -> None:
    class Local(Config):
        x: Param[int]
        """found"""

    assert describe_config(Local).parameters["x"].help == "found"
    unsourced = type(Config)(
        "Unsourced", (Config,), {"__annotations__": {"x": Param[int]}, "__module__": "no"}
    )
    assert describe_config(unsourced).parameters["x"].help == ""
    assert describe_config(unsourced).title == ""
