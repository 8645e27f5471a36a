"""The identity of a config: SHA-256 over a canonical, injective byte form.
Only this module knows that form; changing it means a new version and a new golden file.

Every value carries its type and, where it has one, its length, so no two values share a
form (a decoder in the tests turns forms back into values). Children are counted by digest:

    None n · True T · False F · int i<hex>; · float f<8 bytes> · str s<len>:<utf-8>
    path p<len>:<utf-8> · enum e<class id><member> · list l<count>: · tuple t<count>:
    set S<count>: sorted · dict d<count>: sorted by key · config c<32 bytes>

A config's form is the version, its type id, its counted parameters sorted by name, the
task it came from, its init tasks in order, and the seed that its job was given, if it was.
"""

import enum
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from tenuto.errors import MissingValue, SealedConfig
from tenuto.light import NamedTuple, pathlib, sha256, struct
from tenuto.tasks.arguments import guarded
from tenuto.tasks.base import ConfigBase, ConfigState, caller, class_name, is_config, state_of
from tenuto.tasks.graph import configs_in, postorder
from tenuto.tasks.hints import UNSET
from tenuto.tasks.location import class_id
from tenuto.tasks.schema import IGNORED_FACTORY, Paths, Schema, schema_of

C = TypeVar("C", bound=ConfigBase)

VERSION = 1
_HEADER = b"tenuto-identity-%d\n" % VERSION
_NAN = b"\x7f\xf8" + bytes(6)


class _Epoch:
    """Counts the changes of configs whose digest was already known.

    A digest is remembered with the epoch it was computed in. Changing a config that
    was not hashed yet, which is how configs are built, keeps all digests valid.
    """

    current = 0


@guarded
def identity(config: ConfigBase) -> str:
    """The identity of a config, as 64 hexadecimal digits."""
    return digest(config).hex()


def digest(config: ConfigBase) -> bytes:
    """The identity as 32 bytes; computed once for each config that does not change."""
    state = state_of(config)
    if not has_digest(config):
        try:
            state.digest = _digest_of(config, _WHOLE)
            state.digest_epoch = _Epoch.current
        except _Unhashed:
            _digest_from_below(config)
    return _reference(config)


def _digest_from_below(config: ConfigBase) -> None:
    for node in postorder(config, has_digest):
        state = node._state
        state.digest = _digest_of(node, _WHOLE)
        state.digest_epoch = _Epoch.current


def partial_identity(config: ConfigBase, excluded_groups: frozenset[str]) -> str:
    """The identity without the parameters of some groups, here and below."""
    digest(config)
    digests: dict[int, bytes] = {}
    view = _View(
        lambda child: digests[id(child)],
        lambda converted: bytes.fromhex(partial_identity(converted, excluded_groups)),
        excluded_groups,
    )
    for node in postorder(config, lambda _: False):
        digests[id(node)] = _digest_of(node, view)
    return digests[id(config)].hex()


@guarded
def setmeta(config: "C", flag: bool) -> "C":
    """Counts a config in no identity (`flag` True), or even where its parameter is Meta (False).

    Raises `SealedConfig` if its identity is fixed already. Returns the config.
    """
    state = state_of(config)
    if state.sealed:
        raise SealedConfig(f"{class_name(config)} is sealed, so setmeta() comes too late, at {caller()}")
    forget_all_digests()
    state.is_meta = flag
    return config


@guarded
def former_identity(config: ConfigBase) -> str | None:
    """The identity of a config from before its class, or one in it, was deprecated; None if none was."""
    found = former_digest(config, lambda node: schema_of(type(node)) if _is_deprecated(node) else None)
    return None if found is None else found.hex()


def former_digest(config: ConfigBase, former: Callable[[ConfigBase], Schema | None]) -> bytes | None:
    """The digest with configs counted by the schemas that `former` names; None if it names none."""
    digest(config)
    digests: dict[int, bytes] = {}
    view = _View(lambda child: digests[id(child)], digest)
    is_other = False
    for node in postorder(config, lambda _: False):
        if (old := node._state.replaces) is not None:
            found = former_digest(old, partial(_former_of, old, former))
            is_other = True
            assert found is not None
            digests[id(node)] = found
            continue
        schema = former(node)
        is_other = is_other or schema is not None
        digests[id(node)] = sha256(_form(node, schema or schema_of(type(node)), view)).digest()
    return digests[id(config)] if is_other else None


def _former_of(
    old: ConfigBase, former: Callable[[ConfigBase], Schema | None], node: ConfigBase
) -> Schema | None:
    return schema_of(type(old)) if node is old else former(node)


def _is_deprecated(config: ConfigBase) -> bool:
    return schema_of(type(config)).replacement is not None


def forget_digest(state: ConfigState) -> None:
    """To be called before a config changes."""
    if state.digest is not None:
        forget_all_digests()
        state.digest = None


def forget_all_digests() -> None:
    """To be called when it changes whether a config counts: an uncounted config was not hashed."""
    _Epoch.current += 1


def canonical_form(config: ConfigBase) -> bytes:
    """The bytes whose hash is the identity."""
    digest(config)
    return _form(config, schema_of(type(config)), _WHOLE)


def encode(value: Any) -> bytes:
    """The canonical form of a value."""
    for _, config in configs_in(value):
        digest(config)
    return _WHOLE.encode(value)


def has_digest(config: ConfigBase) -> bool:
    """Whether the remembered digest is right: nothing hashed has changed since, or nothing can change."""
    state = config._state
    return state.digest is not None and (state.sealed or state.digest_epoch == _Epoch.current)


class _Unhashed(Exception):
    """A config inside the one being hashed has no digest yet."""


def _reference(config: ConfigBase) -> bytes:
    state: ConfigState = config._state
    digest = state.digest
    if digest is None or (state.digest_epoch != _Epoch.current and not state.sealed):
        raise _Unhashed
    return digest


class _View:
    """What of the graph is counted: all of it, or all but some groups."""

    __slots__ = ("excluded", "of_converted", "reference")

    def __init__(
        self,
        reference: Callable[[ConfigBase], bytes],
        of_converted: Callable[[ConfigBase], bytes],
        excluded: frozenset[str] = frozenset(),
    ) -> None:
        self.reference = reference
        self.of_converted = of_converted
        self.excluded = excluded

    def encode(self, value: Any) -> bytes:
        scalar = _SCALARS.get(type(value))
        if scalar is not None:
            return scalar(value)
        if isinstance(value, ConfigBase):
            return b"c" + self.reference(value)
        if isinstance(value, enum.Enum):  # before the containers: an enum may be a tuple, too
            return b"e" + _str(class_id(type(value))) + _str(value.name)
        if isinstance(value, list | tuple):
            items = [self.encode(item) for item in value if not _is_meta(item)]
            return b"%b%d:%b" % (b"l" if isinstance(value, list) else b"t", len(items), b"".join(items))
        if isinstance(value, set):
            items = sorted(self.encode(item) for item in value if not _is_meta(item))
            return b"S%d:%b" % (len(items), b"".join(items))
        if isinstance(value, dict):
            pairs = [
                self.encode(key) + self.encode(item) for key, item in value.items() if not _is_meta(item)
            ]
            return b"d%d:%b" % (len(pairs), b"".join(sorted(pairs)))
        if isinstance(value, pathlib.PosixPath):
            return _path(value)
        raise TypeError(f"no canonical form for {type(value)!r}")


def _digest_of(config: ConfigBase, view: _View) -> bytes:
    schema: Schema = type(config).__schema__  # type: ignore[attr-defined]
    replacement = schema.replacement
    if replacement is not None:
        if replacement.convert is not None:
            return view.of_converted(replacement.convert(config))
        assert replacement.target is not None
        schema = schema_of(replacement.target)
    return sha256(_form(config, schema, view)).digest()


def _form(config: ConfigBase, schema: Schema, view: _View) -> bytes:
    values = config.__dict__
    parts: list[bytes] = []
    for name, prefix, counted, ignored_form, holds_configs, groups, _ in schema.identity_plan or _plan(
        schema
    ):
        if name not in values:
            if not counted:
                continue
            raise MissingValue(f"{class_name(config)}.{name} has no value, at {caller()}: give it one")
        value = values[name]
        is_child = holds_configs and isinstance(value, ConfigBase)
        is_meta = value._state.is_meta if is_child else None
        if is_meta or (is_meta is None and not counted) or (groups and groups & view.excluded):
            continue
        form = b"c" + view.reference(value) if is_child else view.encode(value)
        if ignored_form is not None and ignored_form == (form if view is _WHOLE else _WHOLE.encode(value)):
            continue
        parts.append(prefix + form)
    state = config._state
    origin = b"-" if state.origin is None else b"c" + view.reference(state.origin)
    init_tasks = b"".join([b"c" + view.reference(task) for task in state.init_tasks])
    form = b"%b%bP%d:%bo%bI%d:%b" % (
        _HEADER,
        _str(schema.id),
        len(parts),
        b"".join(parts),
        origin,
        len(state.init_tasks),
        init_tasks,
    )
    return form if state.seed is None else form + b"R" + _int(state.seed)


class _Step(NamedTuple):
    """How one parameter enters the form of its config."""

    name: str
    prefix: bytes
    counted: bool
    ignored_form: bytes | None
    holds_configs: bool
    groups: frozenset[str]
    ignored: Any
    """The value whose form is ignored."""


def identity_plan(schema: Schema) -> tuple[_Step, ...]:
    """How each parameter of a class enters the form of its configs."""
    return schema.identity_plan or _plan(schema)


def _plan(schema: Schema) -> tuple[_Step, ...]:
    """The parameters that may count, in the order of the form; made once for each class."""
    steps = []
    for name, parameter in sorted(schema.parameters.items()):
        holds_configs = parameter.type.holds_configs
        if parameter.counted or holds_configs:
            value, form = parameter.ignored, None
            if value is IGNORED_FACTORY and parameter.factory is not None:
                value = parameter.convert(parameter.factory())
            if value is not UNSET:
                form = encode(value)
            counted, groups = parameter.counted, parameter.groups
            steps.append(_Step(name, _str(name), counted, form, holds_configs, groups, value))
    plan = tuple(steps)
    schema.identity_plan = plan
    _planned.append(schema)
    return plan


_planned: list[Schema] = []
"""The classes whose plan is known."""


def count_paths(counted: bool) -> bool:
    """From now on parameters that are paths count in identities, or do not; returns what held before.

    For the process: identities of configs that are not sealed are computed anew.
    """
    before = Paths.are_counted
    if counted is not before:
        Paths.are_counted = counted
        for schema in _planned:
            schema.identity_plan = None
        _planned.clear()
        forget_all_digests()
    return before


def _is_meta(value: Any) -> bool:
    return is_config(value) and value._state.is_meta is True


def _int(value: int) -> bytes:
    return b"i%x;" % value


def _float(value: float) -> bytes:
    return b"f" + (struct.pack(">d", value) if value == value else _NAN)


def _str(value: str) -> bytes:
    data = value.encode("utf-8", "surrogatepass")
    return b"s%d:%b" % (len(data), data)


def _path(value: "pathlib.PosixPath") -> bytes:
    data = str(value).encode("utf-8", "surrogatepass")
    return b"p%d:%b" % (len(data), data)


_SCALARS: dict[type, Callable[[Any], bytes]] = {
    type(None): lambda _: b"n",
    bool: lambda value: b"T" if value else b"F",
    int: _int,
    float: _float,
    str: _str,
}
_WHOLE = _View(_reference, digest)
