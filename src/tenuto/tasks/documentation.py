"""The help of a Config class and its parameters, read from its docstring and source.
Nothing in a job needs it.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import re
import textwrap
from typing import NamedTuple

from tenuto.tasks.arguments import guarded
from tenuto.tasks.base import ConfigBase, brief
from tenuto.tasks.hints import UNSET
from tenuto.tasks.schema import Parameter, schema_of

_PARAM_LINE = re.compile(r"^\s*:(?:param|attr)\s+(\w+)\s*:\s*(.*(?:\n(?!\s*:)(?!\s*$).*)*)", re.MULTILINE)


class ParameterHelp(NamedTuple):
    """What a person reads about a parameter."""

    name: str
    type: str
    help: str
    required: bool
    default: str
    """As text; empty without a default."""


class ConfigHelp(NamedTuple):
    """What a person reads about a Config class."""

    id: str
    title: str
    description: str
    parameters: dict[str, ParameterHelp]


@guarded
def describe_config(cls: type[ConfigBase]) -> ConfigHelp:
    """The help of a class: its docstring, and for each parameter the text found first in
    ``field(help=)`` or ``help()``, the string after the attribute, ``:param name:`` of the docstring."""
    schema = schema_of(cls)
    documentation = inspect.cleandoc(cls.__doc__ or "")
    title, _, rest = _PARAM_LINE.sub("", documentation).strip().partition("\n")
    texts: dict[str, str] = {}
    for owner in reversed(cls.__mro__):
        if issubclass(owner, ConfigBase):
            texts.update(_from_docstring(owner))
            texts.update(_after_attributes(owner))
    return ConfigHelp(
        schema.id,
        title.strip(),
        rest.strip(),
        {
            name: _parameter_help(parameter, texts.get(name, ""))
            for name, parameter in schema.parameters.items()
        },
    )


def _parameter_help(parameter: Parameter, found: str) -> ParameterHelp:
    default = ""
    if parameter.default is not UNSET:
        default = brief(parameter.default)
    elif parameter.generator is not None:
        path = parameter.generator.path or repr(parameter.generator)
        default = f"{path} in the job's directory"
    text = parameter.declaration.field.help or found
    return ParameterHelp(parameter.name, parameter.type.name, text, parameter.required, default)


def _from_docstring(cls: type) -> dict[str, str]:
    documentation = inspect.cleandoc(cls.__dict__.get("__doc__") or "")
    return {name: " ".join(text.split()) for name, text in _PARAM_LINE.findall(documentation)}


def _after_attributes(cls: type) -> dict[str, str]:
    """The string that follows each annotated attribute in the class body."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    except (OSError, TypeError, SyntaxError):
        return {}
    body = getattr(tree.body[0], "body", [])
    found = {}
    for attribute, after in itertools.pairwise(body):
        if (
            isinstance(attribute, ast.AnnAssign)
            and isinstance(attribute.target, ast.Name)
            and isinstance(after, ast.Expr)
            and isinstance(after.value, ast.Constant)
            and isinstance(after.value.value, str)
        ):
            found[attribute.target.id] = inspect.cleandoc(after.value.value)
    return found
