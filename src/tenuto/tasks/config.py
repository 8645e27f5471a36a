"""Config: typed parameters that can be built, checked, composed, tagged and copied.
How values are checked, hashed, sealed or brought to life is in the modules it calls.
"""

from __future__ import annotations

import sys
import types
from abc import ABCMeta
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, dataclass_transform

from tenuto.errors import (
    AmbiguousComposition,
    DeclarationError,
    GraphError,
    InvalidValue,
    MissingValue,
    ParameterError,
    SealedConfig,
    TenutoError,
    UnknownParameter,
)
from tenuto.light import late, pathlib
from tenuto.tasks.arguments import Mismatch, describe, guarded, refused
from tenuto.tasks.base import ConfigBase, ConfigState, brief, caller, class_name, is_config, shown, state_of
from tenuto.tasks.graph import configs_in, postorder
from tenuto.tasks.hints import Role, field
from tenuto.tasks.identity import forget_digest
from tenuto.tasks.live import generated_path, instantiate, seal, thawed
from tenuto.tasks.ports import job_context
from tenuto.tasks.schema import DEFAULT_OF_C, DeprecatedParameter, Schema, conforms, note_id, schema_of
from tenuto.tasks.tags import Tagged, add_tag, tags

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Self

    from tenuto.tasks import html
else:
    html = late("tenuto.tasks.html")

T = TypeVar("T")

_set_state = ConfigBase.__dict__["_state"].__set__


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
class ConfigMeta(ABCMeta):
    """Gives every Config class its ``C``, and reads nothing of the class before it is used."""

    def __new__(
        mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any
    ) -> ConfigMeta:
        _refuse_arguments(name, namespace.get("__init__"), namespace.get("__annotations__", {}))
        _refuse_generator(name, namespace.get("execute"))
        if "<locals>" in namespace.get("__qualname__", ""):
            namespace["__enclosing__"] = dict(sys._getframe(1).f_locals)
        if "C" in namespace:  # else the default of a parameter called C could not be taken off the class
            namespace[DEFAULT_OF_C] = namespace.pop("C")
        cls = super().__new__(mcs, name, bases, namespace, **options)
        if "__xpmid__" in namespace:
            note_id(cls, namespace["__xpmid__"])
        return cls

    def __setattr__(cls, name: str, value: Any) -> None:
        if name in _OF_RECORDS:
            raise DeclarationError(
                f"{cls.__qualname__} is a Config, whose parameters are its fields: take away the decorator "
                f"(@dataclass, @define), whose __init__ would set the defaults whatever the config says"
            )
        super().__setattr__(name, value)

    @property
    def C(cls: type[T]) -> type[T]:
        """Makes configurations: ``Train.C(lr=0.1)``."""
        made: type[T] = config_class(cls)
        return made

    if not TYPE_CHECKING:  # a checker reads the parameters instead

        def __call__(cls, *arguments: Any, **given: Any) -> Any:
            if not cls.__is_config__:
                raise ParameterError(
                    f"{cls.__name__}(...) is not how a config is made: "
                    f"write {cls.__name__}.C(...), at {caller()}"
                )
            return _make(cls, arguments, given)


def _refuse_arguments(name: str, init: Any, parameters: dict[str, Any]) -> None:
    """The `__init__` of a live object is called without arguments: its parameters are set already."""
    code = getattr(init, "__code__", None)
    if code is None:
        return
    needed = code.co_argcount - len(init.__defaults__ or ()) > 1
    needed = needed or code.co_kwonlyargcount > len(init.__kwdefaults__ or {})
    if needed or parameters.keys() & code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]:
        raise DeclarationError(
            f"{name}.__init__ takes arguments: a Config is built from its parameters, which are set when the "
            f"__init__(self) of the live object is called"
        )


_OF_RECORDS = ("__dataclass_fields__", "__attrs_attrs__")
"""What decorators of other record types note on a class."""
_GENERATOR, _ASYNC_GENERATOR = 0x20, 0x200
"""Flags of a function's code, as `inspect` names them."""


def _refuse_generator(name: str, execute: Any) -> None:
    """A function with a ``yield`` returns at once: its job would be done before a line of it had run."""
    flags = getattr(getattr(execute, "__code__", None), "co_flags", 0)
    if flags & (_GENERATOR | _ASYNC_GENERATOR):
        raise DeclarationError(
            f"{name}.execute has a `yield`, so calling it would run none of it: return the result instead, "
            f"and hand over what is ready before the end by register_task_output()"
        )


def config_class(cls: type[Any]) -> Any:
    """The class of the configurations of `cls`: the same, with checked and sealable attributes."""
    made = cls.__dict__.get("__config_class__")
    if made is None:
        if cls.__is_config__:
            return cls
        schema = schema_of(cls)
        _seal_defaults(schema)
        namespace = {
            "__module__": cls.__module__,
            "__qualname__": cls.__qualname__,
            "__doc__": cls.__doc__,
            "__schema__": schema,
            "__is_config__": True,
            "__setattr__": _set_attribute,
            "__delattr__": _delete_attribute,
            "__getattr__": _absent_attribute,
            "__copy__": copyconfig,
            "__deepcopy__": _deep_copy,
        }
        made = ABCMeta.__new__(type(cls), cls.__name__, (cls,), namespace)
        type.__setattr__(cls, "__config_class__", made)
    return made


def _seal_defaults(schema: Schema) -> None:
    """A default that is a config is shared by every config of the class: none may change it."""
    for name, default in schema.defaults.items():
        for _, shared in configs_in(default):
            try:
                seal(shared)
            except TenutoError as error:
                raise DeclarationError(f"the default of {schema.cls.__qualname__}.{name}: {error}") from error


def _make(cls: Any, arguments: tuple[Any, ...], given: dict[str, Any]) -> Any:
    if arguments:
        raise UnknownParameter(
            f"{cls.__name__}.C() takes parameters by name, but got {shown(arguments[0])}, at {caller()}"
        )
    if cls.__abstractmethods__:
        raise ParameterError(
            f"{cls.__name__} is abstract, at {caller()}: make a config of a subclass that defines "
            f"{', '.join(sorted(cls.__abstractmethods__))}"
        )
    config = open_config(cls)
    values = config.__dict__
    parameters = cls.__schema__.parameters
    for name, value in given.items():
        parameter = parameters.get(name)
        if parameter is None or parameter.role is Role.CONSTANT or type(value) is Tagged:
            assign(config, name, value)
            continue
        try:
            values[name] = parameter.convert(value)
        except Mismatch as mismatch:
            raise _invalid(config, name, mismatch) from None
    fill_factories(config)
    return replaced(config)


def open_config(cls: Any) -> Any:
    """A config of a config class that holds the plain defaults and no more."""
    config = object.__new__(cls)
    _set_state(config, ConfigState())
    config.__dict__.update(cls.__schema__.defaults)
    return config


def fill_factories(config: Any) -> None:
    """Calls the default factories of the parameters that have no value."""
    for name, parameter in type(config).__schema__.factories:
        if name not in config.__dict__:
            assign(config, name, parameter.factory())


def replaced(config: Any) -> Any:
    """The config itself, or what stands for it when its class is deprecated with ``replace=True``."""
    replacement = type(config).__schema__.replacement
    if replacement is None or not replacement.replace:
        return config
    made = replacement.convert(config)
    made._state.replaces = config  # the results that it had are found by its former identity
    Replacing.is_used = True
    return made


class Replacing:
    """What former identities have to look for."""

    is_used = False
    """A config was made in place of one of a deprecated class."""


def assign(config: ConfigBase, name: str, value: Any) -> None:
    """Gives a parameter its value, checked; tags it when the value came from `tag`."""
    schema: Schema = type(config).__schema__  # type: ignore[attr-defined]
    parameter = schema.parameters.get(name)
    if parameter is None:
        old = schema.deprecated.get(name)
        if isinstance(old, DeprecatedParameter):
            old.translate(config, value)
            return
        raise UnknownParameter(
            f"{class_name(config)} has no parameter {name!r}, at {caller()}: {schema.suggestion(name)}"
        )
    if parameter.role is Role.CONSTANT:
        raise InvalidValue(
            f"{class_name(config)}.{name} is a Constant and cannot be given, at {caller()}: "
            f"it is {brief(parameter.default)} by declaration"
        )
    tagged = type(value) is Tagged
    if tagged:
        value = value.value
    try:
        kept = parameter.convert(value)
    except Mismatch as mismatch:
        raise _invalid(config, name, mismatch) from None
    state = state_of(config)
    if tagged or (state.own_tags and name in state.own_tags and name in config.__dict__):
        told = class_name(value) if is_config(value) and not tagged else value
        add_tag(config, name, told)  # a tag named after its parameter tells the parameter's value
    forget_digest(state)
    config.__dict__[name] = kept


def _invalid(config: ConfigBase, name: str, mismatch: Mismatch) -> InvalidValue:
    return InvalidValue(f"{class_name(config)}.{name} {describe(mismatch)}, at {caller()}")


def _set_attribute(config: ConfigBase, name: str, value: Any) -> None:
    if state_of(config).sealed:
        raise SealedConfig(
            f"{class_name(config)} is sealed (it was submitted, or seal() was called), so {name!r} "
            f"cannot change, at {caller()}: change a copy, made by copyconfig(config, {name}=...)"
        )
    assign(config, name, value)


def _delete_attribute(config: ConfigBase, name: str) -> None:
    raise ParameterError(
        f"{class_name(config)}.{name} cannot be deleted, at {caller()}: give it another value"
    )


def _absent_attribute(config: Any, name: str) -> Any:
    if name in ("_state", "__dict__") or name.startswith("__"):
        raise AttributeError(name)
    schema: Schema = type(config).__schema__
    if name in schema.generators:
        path = generated_path(config, name)
        if path is not None:
            return path
        raise MissingValue(
            f"{class_name(config)}.{name} is a generated path: it is known once the task is submitted, "
            f"and in the live object"
        )
    if name in schema.parameters:
        raise MissingValue(f"{class_name(config)}.{name} has no value yet")
    remedy = f"derive it from Task, for {class_name(config)} is none" if name in _OF_TASKS else ""
    raise UnknownParameter(
        f"{class_name(config)} has no attribute {name!r}: {remedy or schema.suggestion(name)}"
    )


_OF_TASKS = frozenset(
    ("submit", "job", "jobpath", "result", "wait", "on", "needs", "watch_output", "on_completed")
)


class _ConfigAlias(types.GenericAlias):
    """``Box[int]``: knows what the type variables stand for when a config is made."""

    def __getattribute__(self, name: str) -> Any:
        if name != "C":
            return super().__getattribute__(name)

        def make(**given: Any) -> Any:
            origin: Any = self.__origin__
            config = config_class(origin)(**given)
            try:
                config.__dict__.update(conforms(config, self))
            except Mismatch as mismatch:
                raise InvalidValue(f"{self}{mismatch.where} {_plain(mismatch)}, at {caller()}") from None
            return config

        return make


def _plain(mismatch: Mismatch) -> str:
    return describe(Mismatch(mismatch.expected, mismatch.given, "", mismatch.hint))


class Config(ConfigBase, metaclass=ConfigMeta):
    """Typed parameters, and the methods that work on them.

    Subclass it and declare parameters as annotations; ``X.C(...)`` makes a configuration,
    ``.instance()`` the live object.
    """

    if not TYPE_CHECKING:

        def __class_getitem__(cls, arguments: Any) -> Any:
            if not issubclass(cls, Generic):
                raise DeclarationError(f"{cls.__name__} has no type variables, so it takes no [...]")
            alias = super().__class_getitem__(arguments)
            return _ConfigAlias(cls, alias.__args__)

        def __getattr__(self, name: str) -> Any:
            """Fills in a live object whose values are read on first use."""
            if name != "_state" and name[:2] != "__":
                fill = getattr(self, "_state", None)
                if callable(fill):
                    fill(self)
                    if name in self.__dict__:
                        return self.__dict__[name]
            # Another base may keep attributes elsewhere, as the modules of PyTorch do.
            inherited = getattr(super(), "__getattr__", None)
            if inherited is not None:
                return inherited(name)
            raise AttributeError(f"{class_name(self)!r} object has no attribute {name!r}")

    def seal(self) -> Self:
        """Closes this config, and all configs in it, to changes."""
        seal(self)
        return self

    def copy(self) -> Self:
        """An open copy with the same values, tags, dependencies and watchers."""
        return copyconfig(self)

    @guarded
    def instance(self, directory: Path | str | None = None) -> Self:
        """The live object, in this process; generated paths lie in `directory` (default: here)."""
        live: Self = instantiate(self, pathlib.Path.cwd() if directory is None else directory)
        return live

    def tag(self, name: str, value: str | int | float | bool | None) -> Self:
        """Adds a tag, a name for what varies and its value; never part of the identity.

        Raises `InvalidValue` for a value that is no text, number, bool or None.
        """
        add_tag(self, name, value)
        return self

    def tags(self) -> dict[str, Any]:
        """All tags: own ones, and tags of the configs inside."""
        return tags(self)

    def add_dependencies(self, *dependencies: Any) -> Self:
        """Tasks, jobs or tokens to wait for besides those in the parameters; not part of the identity.

        A task among these `dependencies` must have been submitted before this one is. Raises `SealedConfig`
        after this task was submitted, and `GraphError` or `ParameterError` for what no task can wait for.
        """
        state = state_of(self)
        if state.job is not None:
            raise SealedConfig(
                f"{class_name(self)} was submitted, so add_dependencies() comes too late, at {caller()}"
            )
        for one in dependencies:
            if is_config(one) and not type(one).__is_task__:
                raise GraphError(
                    f"add_dependencies() expects tasks, jobs or tokens, but {class_name(one)} is no task, "
                    f"at {caller()}: give the task that makes it"
                )
            is_ours = is_config(one) or type(one).__module__.startswith("tenuto.")
            if not is_ours or isinstance(one, type):
                raise refused("add_dependencies()", "tasks, jobs or units of tokens", one)
        state.required = (*state.required, *dependencies)
        return self

    @guarded
    def register_task_output(self, method: Callable[..., Any], *arguments: Any, **named: Any) -> None:
        """In a job: hands an output to the watchers of `method`, a method of this task or of a config in it.

        Where it is watched, ``method(dep, *arguments, **named)`` makes the config of the output.
        """
        job_context().register_task_output(method, arguments, named)

    def __matmul__(self, inner: Config) -> Self:
        """``outer @ inner``: a copy of outer, where the one open parameter that accepts it holds inner."""
        fitting = [name for name in open_parameters(self) if _accepts(self, name, inner)]
        if len(fitting) == 1:
            return copyconfig(self, **{fitting[0]: inner})
        what = (
            f"{len(fitting)} parameters ({', '.join(fitting)}) accept"
            if fitting
            else "no open parameter accepts"
        )
        raise AmbiguousComposition(
            f"{class_name(self)} @ {class_name(inner)}: {what} it, at {caller()}: "
            f"name the parameter, as in {class_name(self)}.C(name=...)"
        )

    def _repr_html_(self) -> str:
        """The config in a notebook."""
        # most programs are no notebooks, and every job loads this module
        shown: str = html.config_html(self)
        return shown

    def __repr__(self) -> str:
        if not type(self).__is_config__:
            return object.__repr__(self)
        values = self.__dict__
        names = [name for name in schema_of(type(self)).parameters if name in values]
        return f"{class_name(self)}.C({', '.join(f'{name}={_short(values[name])}' for name in names)})"


def _short(value: Any) -> str:
    if isinstance(value, ConfigBase):
        return f"{class_name(value)}.C(…)"
    return "[…]" if isinstance(value, list | tuple | set | dict) and value else brief(value, 60)


def open_parameters(config: ConfigBase) -> list[str]:
    """The parameters that `@` may give a config: those without a value, or at their default."""
    values, defaults = config.__dict__, schema_of(type(config)).defaults
    return [name for name in _open_names(config) if values.get(name) is defaults.get(name)]


def _open_names(config: ConfigBase) -> list[str]:
    """The parameters that may hold configs, and can be given."""
    schema = schema_of(type(config))
    return [name for name in schema.config_names if schema.parameters[name].role is not Role.CONSTANT]


def _accepts(config: ConfigBase, name: str, inner: ConfigBase) -> bool:
    try:
        schema_of(type(config)).parameters[name].convert(inner)
    except Mismatch:
        return False
    return True


C = TypeVar("C", bound=Config)


@guarded
def copyconfig(config: C, **changes: Any) -> C:
    """An open copy of a config, also of a sealed one, with some values changed.

    `changes`: parameter -> value; `UnknownParameter` or `InvalidValue` for an unfit one. The configs
    inside are shared, not copied; tags, dependencies, watchers, callbacks and origin come along.
    """
    state = state_of(config)
    copied: C = object.__new__(type(config))
    kept = ConfigState()
    names = ["is_meta", "own_tags", "tags_stop", "origin", "is_there", "required", "seed"]
    names.append("completion_callbacks")
    if state.is_given_out:
        names += ["is_given_out", "generated_in"]
    for name in names:
        if name in state.__dict__:
            setattr(kept, name, state.__dict__[name])
    _set_state(copied, kept)
    copied.__dict__.update(config.__dict__)
    for name, value in changes.items():
        assign(copied, name, value)
    if state.watchers:
        kept.watchers = tuple((_rebound(method, config, copied), call) for method, call in state.watchers)
    return copied


def _deep_copy(config: Config, _: Any) -> Any:
    """An open copy of a config, and of the configs in it, but for the tasks that have a job."""
    copies: dict[int, Any] = {}
    nodes: Any = postorder(config, lambda node: False)
    for node in nodes:
        copies[id(node)] = node
        if node is config or node._state.job is None:
            held = {name: node.__dict__.get(name) for name in _open_names(node)}
            copies[id(node)] = copyconfig(
                node, **{name: thawed(one, copies) for name, one in held.items() if one}
            )
    return copies[id(config)]


def _rebound(method: Any, config: Any, copied: Any) -> Any:
    """The method of a copy, or of a config in it, in place of that of the original."""
    for before, after in (
        (config, copied),
        *((config.__dict__[n], copied.__dict__[n]) for n in config.__dict__),
    ):
        if method.__self__ is before:
            return getattr(after, method.__name__, method)
    return method


@guarded
def sealed_set(config: ConfigBase, name: str, value: Any) -> None:
    """Sets the parameter `name` of `config` to `value`, even if it is sealed.

    `SealedConfig` for a parameter that counts for the identity, and for a value that holds configs.
    """
    parameter = schema_of(type(config)).parameters.get(name)
    held = config.__dict__.get(name)
    if parameter is not None and (parameter.counted or any(configs_in([held, value]))):
        raise SealedConfig(
            f"{class_name(config)}.{name} may be part of an identity, so it cannot change once sealed, "
            f"at {caller()}: sealed_set() is for Meta parameters that hold no config"
        )
    assign(config, name, value)
