"""The parameters of a Config class, read from its annotations when they are first needed.
It reads classes; it never touches a config object.
"""

import sys
import typing
from collections.abc import Callable, Iterator
from typing import Any, ForwardRef, TypeVar

from tenuto.errors import ClassNotFound, DeclarationError
from tenuto.light import NamedTuple, difflib, pathlib, pattern
from tenuto.tasks.arguments import Mismatch, describe
from tenuto.tasks.base import ConfigBase
from tenuto.tasks.hints import (
    UNSET,
    Choices,
    Field,
    OutputField,
    PathGenerator,
    PreparedHint,
    Role,
    TPath,
    help,
    partial,
)
from tenuto.tasks.location import class_id, find_loaded, same_source, source_of
from tenuto.tasks.types import Convert, ValueType, value_type

DEFAULT_OF_C = "__default_of_C__"
"""Where the default of a parameter called ``C`` lies in a class, whose own ``C`` makes configs."""
_ROLE_WORDS = pattern(r"\b(Param|Meta|Option|Constant|DataPath)\b")


FUNCTION = "__function__"
"""Marks a class that was made of a function: every annotation of it is a parameter."""
_SHADOWED = {"checkpoint", "needs", "on"}
"""What every task has, and a class may call a parameter of its own."""


class Declaration(NamedTuple):
    """One parameter as written in one class body."""

    name: str
    owner: type
    role: Role
    annotation: Any
    field: Field
    choices: tuple[Any, ...] | None
    generator: PathGenerator | None


class Paths:
    """Whether parameters that are paths count in identities, as the experiments of this process have it."""

    are_counted = True
    are_data = False
    """Some class of this process has a `DataPath`."""


_OF_PATHS = pattern(r"(?:list|set|tuple)?\W*Path(?:\W|None|\.\.\.)*")
"""Matches the name of a type of paths: one, or none, or several."""


class Parameter(NamedTuple):
    """One parameter of a class, ready for use."""

    name: str
    role: Role
    type: ValueType
    convert: Convert
    default: Any
    ignored: Any
    """The value that leaves the identity alone, `UNSET` for none, or what `IGNORED_FACTORY` makes."""
    factory: Callable[[], Any] | None
    generator: PathGenerator | None
    groups: frozenset[str]
    declaration: Declaration

    @property
    def counted(self) -> bool:
        """Whether a value of this parameter is part of the identity."""
        if self.role is Role.PARAM:
            return Paths.are_counted or not _OF_PATHS.fullmatch(self.type.name)
        return self.role is Role.CONSTANT

    @property
    def required(self) -> bool:
        """Whether the caller must give a value."""
        return self.default is UNSET and self.factory is None and self.generator is None


class DeprecatedParameter(NamedTuple):
    """An old parameter name, and the method that translates its value."""

    translate: Callable[[Any, Any], None]


class Schema:
    """Everything known about a Config class before any config of it exists."""

    __slots__ = (
        "cls",
        "config_names",
        "data_names",
        "default_forms",
        "defaults",
        "deprecated",
        "factories",
        "generators",
        "id",
        "identity_plan",
        "parameters",
        "partials",
        "replacement",
        "required",
    )

    def __init__(self, cls: type[ConfigBase]) -> None:
        self.cls = cls
        self.id = type_id(cls)
        self.parameters = dict(_parameters(cls))
        self.partials = _attributes(cls, partial)
        self.deprecated = _attributes(cls, DeprecatedParameter)
        self.replacement: Replacement | None = cls.__dict__.get("__deprecated__")
        _check_replacement(self)
        self.identity_plan: Any = None
        """Filled by `identity` on first use."""
        self.default_forms: dict[tuple[str, ...], bytes] = {}
        """Filled by `stored_values`: the digests of some parameters at their ignored defaults."""
        every = self.parameters.values()
        self.defaults = {p.name: p.default for p in every if p.default is not UNSET}
        self.factories = [(p.name, p) for p in every if p.factory is not None]
        self.generators = {p.name: _placed(cls, p.generator) for p in every if p.generator is not None}
        self.required = tuple(p.name for p in every if p.required)
        self.config_names = tuple(p.name for p in every if p.type.holds_configs)
        self.data_names = tuple(p.name for p in every if p.role is Role.DATA)
        Paths.are_data = Paths.are_data or bool(self.data_names)

    def suggestion(self, name: str) -> str:
        """`` Did you mean 'lr'?``, or the list of what exists."""
        close = difflib.get_close_matches(name, self.parameters, 1)
        if close:
            return f"did you mean {close[0]!r}?"
        if not self.parameters:
            return "it has no parameters"
        return f"its parameters are {', '.join(self.parameters)}"


class Replacement(NamedTuple):
    """How a deprecated class stands for a newer one (see `deprecation`)."""

    target: type[ConfigBase] | None
    convert: Callable[[Any], Any] | None
    replace: bool


deprecated: list[type] = []
"""The classes that stand for newer ones."""


def is_of_deprecated(*ids: Any) -> bool:
    """Whether one of these is the id of a class that stands for a newer one."""
    return any(type_id(one) in ids for one in deprecated)


def _placed(cls: type, generator: PathGenerator) -> PathGenerator:
    """What a `Prepare` config makes lies in a directory of its own, and in no job's."""
    if not getattr(cls, "__is_prepare__", False) or generator.partial is not None:
        return generator
    if generator.stream is not None or not generator.path:
        raise DeclarationError(f"{cls.__qualname__} is prepared outside of any job: give its path as text")
    return PathGenerator(generator.path, partial=PreparedHint())


def _check_replacement(schema: Schema) -> None:
    """A deprecated class is counted by its successor's parameters, so it may have no others."""
    replacement = schema.replacement
    if replacement is None or replacement.convert is not None or replacement.target is None:
        return
    added = schema.parameters.keys() - schema_of(replacement.target).parameters.keys()
    if added:
        raise DeclarationError(
            f"@deprecate: {schema.cls.__qualname__} has parameters that its successor "
            f"{replacement.target.__qualname__} has not ({', '.join(sorted(added))}): define __convert__"
        )


def schema_of(cls: type[ConfigBase]) -> Schema:
    """The schema of a Config class, read once."""
    schema: Schema | None = cls.__dict__.get("__schema__")
    if schema is None:
        schema = Schema(cls)
        type.__setattr__(cls, "__schema__", schema)
    return schema


def type_id(cls: type) -> str:
    """The id of a class: its own ``__xpmid__``, else module and qualified name."""
    own = cls.__dict__.get("__xpmid__")
    if own is None:
        return class_id(cls)
    if not isinstance(own, str) or not own:
        raise DeclarationError(f"{cls.__qualname__}.__xpmid__ must be a non-empty string, not {own!r}")
    return own


_named: dict[str, dict[tuple[str, str], type]] = {}
"""``__xpmid__`` -> classes that have it, by module and name: a class declared again replaces itself."""


def note_id(cls: type, own: object) -> None:
    """Remembers a class that is declared with an ``__xpmid__``; a job cannot have one of a function."""
    if isinstance(own, str) and "<locals>" not in cls.__qualname__:
        _named.setdefault(own, {})[cls.__module__, cls.__qualname__] = cls


def refuse_shared_id(schema: Schema) -> None:
    """Refuses a class if another one has its id: the jobs of one would have the results of the other."""
    cls = schema.cls
    others = list(_named.get(schema.id, {}).values())
    if "__xpmid__" in cls.__dict__ and (named := find_loaded(schema.id)) is not None:
        others.append(named)
    for other in others:
        is_current = find_loaded(class_id(other)) is other and issubclass(other, ConfigBase)
        is_replaced = schema.replacement is not None or "__deprecated__" in vars(other)
        is_one = other is cls or same_source(other, cls)
        if is_current and not is_replaced and not is_one and type_id(other) == schema.id:
            raise ClassNotFound(
                f"{other.__qualname__} ({source_of(other)}) and {cls.__qualname__} ({source_of(cls)}) "
                f"have one id, {schema.id!r}, so that one would have the results of the other: "
                f"give one of them another __xpmid__, or delete it (in a notebook by "
                f"`del {other.__qualname__}`)"
            )


def conforms(config: Any, annotation: Any) -> dict[str, Any]:
    """Checks the values of a config against a generic type such as ``Box[int]``.

    Returns the values that depend on the type variables, as that type keeps them.
    """
    origin = typing.get_origin(annotation)
    arguments = typing.get_args(annotation)
    bound = dict(zip(getattr(origin, "__parameters__", ()), arguments, strict=False))
    kept = {}
    for name, parameter in schema_of(origin).parameters.items():
        declaration = parameter.declaration
        if name not in config.__dict__ or not _mentions_variable(declaration.annotation):
            continue
        inherited = _bindings(origin).get(declaration.owner, {})
        bindings = bound if declaration.owner is origin else _rebound(inherited, bound)
        try:
            kept[name] = _read_type(declaration, bindings).convert(config.__dict__[name])
        except Mismatch as mismatch:
            raise mismatch.inside(f".{name}") from None
    return kept


def _parameters(cls: type[ConfigBase]) -> Iterator[tuple[str, Parameter]]:
    """The parameters of a class and its parents: parents' first, the youngest declaration wins."""
    found: dict[str, Declaration] = {}
    for owner in reversed(cls.__mro__):
        if not issubclass(owner, ConfigBase):
            continue
        for declaration in _declared_in(owner, found):
            _check_override(found.get(declaration.name), declaration)
            found[declaration.name] = declaration
        if DEFAULT_OF_C in owner.__dict__ and "C" not in found:
            raise DeclarationError(
                f"{owner.__qualname__}.C makes configs: annotate it, as in C: Param[float] = 1.0, or choose "
                f"another name"
            )
    bindings = _bindings(cls)
    for name, declaration in found.items():
        yield name, _parameter(declaration, bindings.get(declaration.owner, {}))


def _declared_in(owner: type, inherited: dict[str, Declaration]) -> list[Declaration]:
    """What one class body declares, and which inherited parameters it gives another default."""
    declared = _annotated_in(owner)
    own = {declaration.name for declaration in declared}
    overridden = owner.__dict__["__overridden__"]
    for name in inherited:
        if name not in own and _stored_as(name) in owner.__dict__:
            overridden[name] = _taken_off(owner, name)
    return [
        *declared,
        *(_redeclared(owner, inherited[name], overridden[name]) for name in overridden if name in inherited),
    ]


def _annotations_of(owner: type) -> dict[str, Any]:
    """The annotations in one class body.

    Not `owner.__annotations__`: a program that asks for those of the metaclass, as `inspect` does, has Python
    keep them there, where they hide the way to a class's own. A class without any then has its parent's.
    """
    found: dict[str, Any] = type.__dict__["__annotations__"].__get__(owner)  # noqa: RUF063  `inspect` takes long to load
    return found


def _annotated_in(owner: type) -> list[Declaration]:
    """The parameters that one class body annotates; read once, and the defaults taken off the class."""
    known: list[Declaration] | None = owner.__dict__.get("__declared__")
    if known is not None:
        return known
    declared = []
    annotations = dict(_annotations_of(owner))
    outputs = [name for name, value in owner.__dict__.items() if isinstance(value, OutputField)]
    for name in outputs:
        annotations.setdefault(name, None)
    for name, given in annotations.items():
        annotation = _evaluated(owner, name, given)
        if name in outputs and typing.get_origin(annotation) is not typing.Annotated:
            annotation = typing.Annotated[pathlib.Path, Role.META]
        declaration = _declaration(owner, name, annotation)
        if declaration is not None:
            declared.append(declaration)
    for declaration in declared:  # only now: a class refused above may be fine later, and needs its defaults
        _taken_off(owner, declaration.name)
    type.__setattr__(owner, "__declared__", declared)
    type.__setattr__(owner, "__overridden__", {})
    return declared


def _taken_off(owner: type, name: str) -> Any:
    """The default of a parameter, which does not stay on the class: there it would answer, wrongly,
    for a live object whose values are not loaded yet."""
    stored = _stored_as(name)
    value = owner.__dict__.get(stored)
    if stored in owner.__dict__:
        type.__delattr__(owner, stored)
    return value


def _stored_as(name: str) -> str:
    """What the default of a parameter is called in the class that gives it."""
    return DEFAULT_OF_C if name == "C" else name


def _declaration(owner: type, name: str, annotation: Any) -> Declaration | None:
    """The declaration that an annotation stands for; None if it is not a parameter."""
    if typing.get_origin(annotation) is not typing.Annotated:
        _refuse_role_inside(owner, name, annotation)
        if FUNCTION not in owner.__dict__:
            return None
        annotation = typing.Annotated[annotation, Role.PARAM]
    inner, *hints = typing.get_args(annotation)
    roles = [hint for hint in hints if isinstance(hint, Role)]
    generators = [hint for hint in hints if isinstance(hint, PathGenerator)]
    if not roles and not generators:
        return None
    for parent in owner.__mro__[1:]:
        is_ours = name in parent.__dict__ and parent.__module__.startswith("tenuto.")
        if is_ours and name[:2] != "__" and name not in _SHADOWED:
            raise DeclarationError(
                f"{owner.__qualname__}.{name}: {name!r} is a name that every {parent.__name__} has; "
                f"choose another for the parameter"
            )
    given = owner.__dict__.get(_stored_as(name), UNSET)
    field = given if isinstance(given, Field) else Field(ignore_default=given)
    helps = [hint.text for hint in hints if isinstance(hint, help)]
    if helps and not field.help:
        field.help = helps[-1]
    choices = [hint.values for hint in hints if isinstance(hint, Choices)]
    if isinstance(field.default_factory, PathGenerator):
        generators.append(field.default_factory)
    role = Role.META if generators else roles[-1]
    generator = generators[-1] if generators else None
    return Declaration(name, owner, role, inner, field, choices[-1] if choices else None, generator)


def _refuse_role_inside(owner: type, name: str, annotation: Any) -> None:
    """``Param[int] | None`` would be read as no parameter at all, without a word."""
    for inner in typing.get_args(annotation):
        if any(isinstance(hint, Role) for hint in getattr(inner, "__metadata__", ())):
            raise DeclarationError(
                f"{owner.__qualname__}.{name}: Param, Meta and the like go outermost, "
                f"as in Param[int | None], not {annotation}"
            )


def _redeclared(owner: type, inherited: Declaration, value: Any) -> Declaration:
    """``lr = 3`` in a child, without annotation: the parent's parameter with another default."""
    if callable(value) or hasattr(value, "__get__"):
        raise DeclarationError(
            f"{owner.__qualname__}.{inherited.name} hides the parameter of that name "
            f"of {inherited.owner.__qualname__}; choose another name"
        )
    field = value if isinstance(value, Field) else Field(ignore_default=value)
    field.help = field.help or inherited.field.help
    field.groups = field.groups or inherited.field.groups
    generator = field.default_factory if isinstance(field.default_factory, PathGenerator) else None
    role = Role.META if generator else inherited.role
    return inherited._replace(field=field, generator=generator, role=role)


def _check_override(parent: Declaration | None, child: Declaration) -> None:
    if parent is None or child.field.overrides or parent.annotation == child.annotation:
        return
    old, new = parent.annotation, child.annotation
    if isinstance(old, TypeVar) or (isinstance(old, type) and isinstance(new, type) and issubclass(new, old)):
        return
    raise DeclarationError(
        f"{child.owner.__qualname__}.{child.name} has another type than in "
        f"{parent.owner.__qualname__} ({_type_name(new)} instead of {_type_name(old)}): "
        f"write field(overrides=True) if that is meant"
    )


def _parameter(declaration: Declaration, bindings: dict[Any, Any]) -> Parameter:
    field = declaration.field
    kept = _read_type(declaration, bindings)
    convert = kept.convert
    if declaration.choices is not None:
        try:
            convert = _among(tuple(map(convert, declaration.choices)), convert)
        except Mismatch as mismatch:
            raise DeclarationError(f"a choice of {_where(declaration)} {describe(mismatch)}") from None
    factory = field.default_factory if declaration.generator is None else None
    default, ignored = _defaults(declaration, kept)

    def taken(value: Any) -> Any:
        try:
            return value if value is UNSET or value is IGNORED_FACTORY else convert(value)
        except Mismatch as mismatch:
            raise DeclarationError(f"the default of {_where(declaration)} {describe(mismatch)}") from None

    is_one = ignored is default
    default = taken(default)
    if declaration.role is Role.CONSTANT and default is UNSET:
        raise DeclarationError(f"{_where(declaration)} is a Constant and needs a value in the class")
    return Parameter(
        declaration.name,
        declaration.role,
        kept,
        convert,
        default,
        default if is_one else taken(ignored),
        factory,
        declaration.generator,
        field.groups,
        declaration,
    )


IGNORED_FACTORY = object()
"""Stands for what the default factory of a parameter makes, where that is ignored."""


def _defaults(declaration: Declaration, kept: ValueType) -> tuple[Any, Any]:
    """The default of a parameter, and the value that does not count; `UNSET` for none."""
    field, ignored = declaration.field, declaration.field.ignore_default
    if declaration.role is Role.CONSTANT:
        return (field.default if field.default is not UNSET else ignored), UNSET
    if field.default is not UNSET:
        # Beside a default, True is a flag, also for a bool: `ignore_value` names a value, whatever it is.
        return field.default, (field.default if field.is_flag else ignored)
    if field.default_factory is not None:
        return UNSET, (IGNORED_FACTORY if field.is_flag else ignored)
    is_optional = declaration.role in (Role.PARAM, Role.META) and kept.name.endswith(" | None")
    if ignored is UNSET and declaration.generator is None and is_optional:
        return None, UNSET  # which counts: so it did while it had to be given
    return ignored, ignored


def _among(choices: tuple[Any, ...], convert: Convert) -> Convert:
    def chosen(value: Any) -> Any:
        kept = convert(value)
        if not any(type(kept) is type(choice) and kept == choice for choice in choices):
            raise Mismatch(f"one of {', '.join(map(repr, choices))}", value)
        return kept

    return chosen


def _read_type(declaration: Declaration, bindings: dict[Any, Any]) -> ValueType:
    namespace = _namespace(declaration.owner)

    def resolve(annotation: Any) -> Any:
        """What text stands for; all else had its variables replaced at the start, and is left alone."""
        if annotation is TPath:
            return pathlib.Path | None
        if isinstance(annotation, ForwardRef):
            annotation = annotation.__forward_arg__
        if not isinstance(annotation, str):
            return annotation
        return resolve(_substituted(eval(annotation, namespace), bindings))

    try:
        return value_type(_substituted(declaration.annotation, bindings), resolve, conforms)
    except DeclarationError as error:
        raise DeclarationError(f"{_where(declaration)}: {error}") from None
    except NameError as error:
        raise DeclarationError(
            f"{_where(declaration)}: the type {_type_name(declaration.annotation)} is not known here "
            f"({error}); import it, outside of `if TYPE_CHECKING:`"
        ) from None


def _evaluated(owner: type, name: str, annotation: Any) -> Any:
    """An annotation as an object; that of no parameter may be left as text."""
    if not isinstance(annotation, str):
        return annotation
    try:
        return eval(annotation, _namespace(owner))
    except Exception as error:  # noqa: BLE001  an annotation may be any expression
        if not _ROLE_WORDS.search(annotation) and FUNCTION not in owner.__dict__:
            return annotation
        raise DeclarationError(
            f"{owner.__qualname__}.{name}: the annotation {annotation!r} cannot be read ({error}); "
            f"import what it names, outside of `if TYPE_CHECKING:`"
        ) from None


def _namespace(owner: type) -> dict[str, Any]:
    """The names an annotation of this class may use."""
    module = sys.modules.get(owner.__module__)
    return {
        **(vars(module) if module else {}),
        **owner.__dict__.get("__enclosing__", {}),
        **vars(owner),
        owner.__name__: owner,
    }


def _bindings(cls: type) -> dict[type, dict[Any, Any]]:
    """For each generic ancestor, what its type variables stand for in this class."""
    found: dict[type, dict[Any, Any]] = {}
    for base in cls.__dict__.get("__orig_bases__", cls.__bases__):
        origin = typing.get_origin(base) or base
        if not isinstance(origin, type) or not issubclass(origin, ConfigBase):
            continue
        own = dict(zip(getattr(origin, "__parameters__", ()), typing.get_args(base), strict=False))
        found[origin] = own
        for ancestor, inner in _bindings(origin).items():
            found[ancestor] = _rebound(inner, own)
    return found


def _rebound(bindings: dict[Any, Any], own: dict[Any, Any]) -> dict[Any, Any]:
    return {variable: _substituted(value, own) for variable, value in bindings.items()}


def _substituted(annotation: Any, bindings: dict[Any, Any]) -> Any:
    """An annotation with its type variables replaced, all at once: ``{T: U, U: T}`` swaps them."""
    if isinstance(annotation, TypeVar):
        return bindings.get(annotation, annotation)
    variables = getattr(annotation, "__parameters__", ())
    if isinstance(annotation, type) or not any(variable in bindings for variable in variables):
        return annotation
    return annotation[tuple(bindings.get(variable, variable) for variable in variables)]


def _mentions_variable(annotation: Any) -> bool:
    return isinstance(annotation, TypeVar) or bool(getattr(annotation, "__parameters__", ()))


def _attributes(cls: type, kind: type) -> dict[str, Any]:
    found = {}
    for owner in reversed(cls.__mro__):
        found.update({name: value for name, value in owner.__dict__.items() if isinstance(value, kind)})
    return found


def _where(declaration: Declaration) -> str:
    return f"{declaration.owner.__qualname__}.{declaration.name}"


def _type_name(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)
