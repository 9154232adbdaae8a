"""Views: each class of values declares the form of its own fields.

::

    @shown("problems", Column("age", "Age of the problem.", lambda v: v.age_s, Kind.SECONDS))
    class Problem:
        place: str = field("The metadata service, or a VERSION file.")
        seen_ms: int = field("The time of the last report.", name="seen", kind=Kind.TIME_MS)

``shown`` makes a frozen class of attrs. A column is an attribute, a path of attributes, or the
result of a function of the value. Without ``kind`` its kind follows from the attribute's
annotation. Views of classes outside ``bkctl`` are declared with ``declare_view`` in the folder of
the commands that print them; ``view_registry`` lists these classes.
"""

from __future__ import annotations

import enum
import importlib
import operator
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypedDict, TypeVar

import attrs

from bkctl.errors import UsageError
from bkctl.output.view_registry import LIBRARY_VALUES
from bkctl.suggest import did_you_mean

if TYPE_CHECKING:
    from typing_extensions import Unpack, dataclass_transform

    from bkctl.global_options import Options
else:

    def dataclass_transform(**_how: Any) -> Callable[[T], T]:
        """Do nothing, as ``typing.dataclass_transform`` of later Pythons."""
        return lambda function: function


T = TypeVar("T")

_COLUMN: Final = "column"

_OTHER_NAMES: Final[Mapping[str, str]] = types.MappingProxyType(
    {"bytes": "length", "copies": "write_quorum", "replicas": "write_quorum", "size": "length"}
)
"""Other names of a ledger's fields, for views without a field of that name."""

_SIZES: Final = frozenset({"bytes", "capacity", "disk", "size", "space", "storage"})
"""Words that mean one of a view's sizes."""

WIDE: Final = 9
"""Rank of fields that are shown only with ``-o wide``."""
NEVER: Final = 10
"""Rank of fields that only the table of a single object shows."""


class Kind(enum.Enum):
    """The kind of a field's content; decides its form in a table and in JSON."""

    TEXT = "text"
    COUNT = "count"
    NUMBER = "number"
    """A number with a fraction."""
    BYTES = "number of bytes"
    TIME_MS = "time"
    SECONDS = "seconds"
    FLAG = "yes or no"
    LEDGER_ID = "ledger id"
    STATE = "state"
    DATA = "data"
    """Bytes; base64 in machine forms."""
    NESTED = "list or object"
    ANY = "any value"


_KINDS: Final[Mapping[str, Kind]] = types.MappingProxyType(
    {
        "int": Kind.COUNT,
        "EntryId": Kind.COUNT,
        "float": Kind.NUMBER,
        "bool": Kind.FLAG,
        "LedgerId": Kind.LEDGER_ID,
        "bytes": Kind.DATA,
        "tuple": Kind.NESTED,
        "list": Kind.NESTED,
        "Sequence": Kind.NESTED,
        "dict": Kind.NESTED,
        "Mapping": Kind.NESTED,
    }
)
"""The kind for each annotation; all other annotations are texts."""

_KINDS_OF_NAMES: Final[Mapping[str, Kind]] = types.MappingProxyType(
    {"ms": Kind.TIME_MS, "s": Kind.SECONDS, "bytes": Kind.BYTES, "state": Kind.STATE}
)
"""The kind for the last word of an attribute's name, which is a unit."""


@attrs.frozen
class Column:
    """The declaration of one field of a class.

    ``of`` is the source of its content: an attribute's path (``name`` by default), or a function. A
    path with a None in the middle results in None. Tuples become lists, and mappings dictionaries.

    ``rank`` is the order in which columns are left out of a table that is too wide: 0 never, the
    highest first; ``WIDE`` is only for ``-o wide``. ``cell`` makes a table's text if the kind's
    default text is not suitable.
    """

    name: str
    doc: str
    of: str | Callable[[Any], Any] = ""
    kind: Kind | None = None
    rank: int = attrs.field(default=0, kw_only=True)
    header: str = attrs.field(default="", kw_only=True)
    cell: Callable[[Any], str] | None = attrs.field(default=None, kw_only=True)
    optional: bool = attrs.field(default=False, kw_only=True)
    """True to omit an absent value from JSON and YAML, instead of null."""
    if_any: bool = attrs.field(default=False, kw_only=True)
    """True to leave the column out of a table if it is empty, except with -o wide or --columns."""
    cell_of_none: bool = attrs.field(default=False, kw_only=True)
    """True if ``cell`` also makes a text for an absent value, in place of a dash."""
    after: str = attrs.field(default="", kw_only=True)
    """The preceding column; by default the column follows all attributes."""

    def on(self, shown_class: type) -> Field:
        """Return the field of values of ``shown_class``.

        Raises:
            TypeError: the class does not have the attribute.
        """
        get, kind = self.of or self.name, self.kind
        if isinstance(get, str):
            kind = kind or _kind_of(shown_class, get)
            get = _listed(get) if kind is Kind.NESTED else _reader(get)
        kind = kind or _kind_of_annotation(getattr(get, "__annotations__", {}).get("return"))
        values = {**attrs.asdict(self, recurse=False), "kind": kind}
        return Field(**values, get=get)


@attrs.frozen
class Field(Column):
    """A column of one class: ``get`` returns its content from a value of the class."""

    kind: Kind = attrs.field(kw_only=True)
    get: Callable[[Any], Any] = attrs.field(kw_only=True)

    @property
    def title(self) -> str:
        return self.header or self.name.upper().replace("_", " ")


@attrs.frozen
class View:
    """The declaration of the output of one kind of value."""

    name: str
    """The plural name of the values: ``ledgers``."""
    fields: tuple[Field, ...]
    id_field: str = attrs.field(alias="id")
    """The field of ids; the first one by default."""
    sentence: Callable[[Any], str] | None = None
    """Makes the complete text of an action's outcome, in place of a table."""
    lines: Callable[[Any, int | None, bool], Iterable[str]] | None = None
    """In place of ``sentence``: makes lines for a width or None, with or without colour."""
    healthy: Callable[[Any], bool] | None = None
    """The condition of ``--until healthy`` for one value."""
    done: Callable[[Any], bool] | None = None
    """The condition of ``--until done`` for one value."""
    nothing: str = attrs.field()
    """The message in place of an empty table; ``no NAME`` by default."""
    dated: bool = False
    """True if the field ``time`` of a value is printed before its sentence."""
    bare: bool = False
    """True if a single value is printed as its id alone, for ``id=$(bkctl ledger create)``."""

    @id_field.default
    def _first_field(self) -> str:
        return self.fields[0].name

    @nothing.default
    def _no_such(self) -> str:
        return f"no {self.name}"

    def __getitem__(self, name: str) -> Field:
        found = next((field for field in self.fields if field.name == name), None)
        found = found or self.named(name)
        if found is None:
            raise KeyError(name)
        return found

    @property
    def speaks(self) -> bool:
        """True if values are printed as sentences and not as a table."""
        return self.lines is not None or self.sentence is not None

    def named(self, word: str) -> Field | None:
        """Return the field with this name in JSON, or this column header; None without a match.

        ``custom.app`` is the value under ``app`` in the object ``custom``.
        """
        name, _, key = word.strip().partition(".")
        if key and (inner := self.named(name)) is not None and inner.kind is Kind.NESTED:
            return _of_key(inner, key)
        folded = word.strip().lower().replace(" ", "_").replace("-", "_")
        words = {field.title.lower().replace(" ", "_"): field for field in reversed(self.fields)}
        words |= {field.name: field for field in self.fields}
        also = self.id_field if folded == "id" else _OTHER_NAMES.get(folded, "")
        return words.get(folded) or words.get(also)

    def no_field(self, option: str, word: str) -> UsageError:
        """Return the error of a word that is not the name of a field."""
        names = [field.name for field in self.fields]
        titles = [field.title.lower() for field in self.fields]
        custom = ", or custom.KEY" if "custom" in names else ""
        sizes = [field.name for field in self.fields if field.kind is Kind.BYTES]
        near = did_you_mean(word.lower(), [*names, *titles])
        if sizes and word.lower() in _SIZES:
            near = f"; did you mean {' or '.join(sizes)}?"
        return UsageError(
            f"{option}: no field {word!r}{near}",
            next_step=f"the fields are {', '.join(names)}{custom}",
        )


def _of_key(field: Field, key: str) -> Field:
    """Return a field for the value under a key of an object; None if the object lacks the key."""

    def get(value: Any) -> Any:
        inner = field.get(value)
        return inner.get(key) if isinstance(inner, Mapping) else None

    return Field(
        name=f"{field.name}.{key}",
        doc=f"{key} of {field.name}.",
        header=key.upper(),
        kind=Kind.TEXT,
        get=get,
        optional=True,
    )


def _kind_of(shown_class: type, path: str) -> Kind:
    """Return the kind from an attribute's name, else from its annotation; for a path, the name."""
    first, _, below = path.partition(".")
    annotations = [vars(one).get("__annotations__", {}) for one in shown_class.__mro__]
    found = next((own[first] for own in annotations if first in own), None)
    if found is None:
        getter = getattr(shown_class, first, None)
        if not isinstance(getter, property):
            raise TypeError(f"a {shown_class.__name__} has no {first!r}")
        found = getter.fget.__annotations__.get("return", "str")
    by_name = _KINDS_OF_NAMES.get(path.rpartition(".")[2].rpartition("_")[2])
    return by_name or (Kind.TEXT if below else _kind_of_annotation(found))


def _kind_of_annotation(found: object) -> Kind:
    return _KINDS.get(str(found).removesuffix(" | None").partition("[")[0], Kind.TEXT)


def _reader(path: str) -> Callable[[Any], Any]:
    """Return a function that follows a path of attributes, and returns None after a None."""
    first, *others = path.split(".")
    get = operator.attrgetter(first)
    if not others:
        return get

    def found(value: Any) -> Any:
        inner = get(value)
        for name in others:
            if inner is None:
                return None
            inner = getattr(inner, name)
        return inner

    return found


def _listed(path: str) -> Callable[[Any], Any]:
    """Return a function that returns an attribute in its form for JSON: a list, or a dictionary."""
    get = _reader(path)

    def found(value: Any) -> Any:
        inner = get(value)
        if isinstance(inner, Mapping):
            return dict(inner)
        is_many = isinstance(inner, Iterable) and not isinstance(inner, str)
        return list(inner) if is_many else inner

    return found


class _ViewSettings(TypedDict, total=False):
    """The settings of a view besides its name and its columns, as in ``View``."""

    id: str
    sentence: Callable[[Any], str]
    lines: Callable[[Any, int | None, bool], Iterable[str]]
    healthy: Callable[[Any], bool]
    done: Callable[[Any], bool]
    nothing: str
    dated: bool
    bare: bool


def field(
    column: str | Column,
    *,
    name: str = "",
    default: Any = attrs.NOTHING,
    factory: Callable[[], Any] | None = None,
    **more: Any,
) -> Any:
    """Declare an attribute and its column: a shared column, or the description of a new one.

    ``more`` are the arguments of ``Column``. ``name`` is the column's, if it differs from the
    attribute's.
    """
    made = column if isinstance(column, Column) else Column(name, column, **more)
    return attrs.field(default=default, factory=factory, metadata={_COLUMN: made})


@dataclass_transform(frozen_default=True, field_specifiers=(attrs.field, field))
def shown(
    name: str, *columns: Column, kw_only: bool = False, **how: Unpack[_ViewSettings]
) -> Callable[[type[T]], type[T]]:
    """Make a class of values, and declare the name of its values and their columns.

    ``columns`` follow those of the class's own attributes, or the column of their ``after``.
    """

    def decorate(plain: type[T]) -> type[T]:
        made: Any = plain
        if "__attrs_attrs__" not in vars(plain):
            made = attrs.frozen(plain, kw_only=kw_only)
        found = list(_own_columns(made))
        for column in columns:
            before = [one.name for one in found].index(column.after) if column.after else len(found)
            found.insert(before + 1, column)
        made.__view__ = _view(made, name, found, how)
        return made  # type: ignore[no-any-return]

    return decorate


def _own_columns(kind: type[attrs.AttrsInstance]) -> Iterator[Column]:
    for one in attrs.fields(kind):
        column: Column | None = one.metadata.get(_COLUMN)
        if column is not None and one.name in vars(kind).get("__annotations__", ()):
            yield attrs.evolve(column, name=column.name or one.name, of=column.of or one.name)


def evolve(value: T, /, **changes: Any) -> T:
    """Return a shown value with some attributes changed, as ``attrs.evolve`` does."""
    made: T = attrs.evolve(value, **changes)  # type: ignore[misc]
    return made


_OF_LIBRARY: Final[dict[type, View]] = {}


def declare_view(
    library_class: type, name: str, *columns: Column, **how: Unpack[_ViewSettings]
) -> None:
    """Declare the view of a class outside ``bkctl``, as ``shown`` does for classes of ``bkctl``."""
    _OF_LIBRARY[library_class] = _view(library_class, name, columns, how)


def _view(shown_class: type, name: str, columns: Iterable[Column], how: _ViewSettings) -> View:
    return View(name, tuple(one.on(shown_class) for one in columns), **how)


def declares_view(kind: type) -> bool:
    """Return whether a class declares its own view."""
    return "__view__" in vars(kind)


def view_of(kind: type) -> View:
    """Return the view of a kind of value.

    Raises:
        KeyError: the class has no declared view.
    """
    if declares_view(kind):
        own: View = vars(kind)["__view__"]
        return own
    if kind not in _OF_LIBRARY:
        importlib.import_module(LIBRARY_VALUES[f"{kind.__module__}.{kind.__qualname__}"])
    return _OF_LIBRARY[kind]


def formerly(one: Column, name: str) -> Column:
    """Return a column under an older name, which machine forms and options still accept."""
    doc, of = f"Older name of `{one.name}`.", one.of or one.name
    return attrs.evolve(one, name=name, doc=doc, of=of, rank=NEVER, header="")


# Columns that several classes have ----------------------------------------------------------------

BOOKIE: Final = Column("bookie_id", "The bookie.", header="BOOKIE")
LEDGER: Final = Column("ledger_id", "The ledger.", kind=Kind.LEDGER_ID, header="LEDGER")
ENTRY: Final = Column("entry_id", "The entry.", kind=Kind.COUNT, header="ENTRY")
SIZE: Final = Column("size", "Bytes of payload.", kind=Kind.BYTES)
SECONDS: Final = Column("seconds", "Duration.", kind=Kind.SECONDS)
ENTRIES: Final = Column("entries", "Number of entries.", kind=Kind.COUNT)

OLDER_IDS: Final = (formerly(LEDGER, "ledger"), formerly(ENTRY, "entry"))
"""The older names of ``ledger_id`` and ``entry_id`` in lists of entries."""
PAYLOAD_SIZE: Final = Column("size", "Bytes of payload.", lambda v: len(v.payload), Kind.BYTES)
OLDER_SIZE: Final = attrs.evolve(
    formerly(PAYLOAD_SIZE, "length"),
    doc="Older name of `size`; the column `length` of Parquet files is the ledger's up to here.",
)
PAYLOAD: Final = (
    Column(
        "payload_b64",
        "The payload in base64; none with --entry-format.",
        lambda v: None if v.text is not None else v.payload,
        Kind.DATA,
        rank=NEVER,
        optional=True,
    ),
    Column(
        "payload",
        "The payload in the form of --entry-format.",
        "text",
        Kind.ANY,
        rank=1,
        optional=True,
    ),
)
"""The payload of an entry: as bytes, or in the form of ``--entry-format``."""


def chosen_fields(options: Options, view: View, fields: Sequence[Field]) -> Sequence[Field]:
    """Return the fields of ``--columns`` in its order, else ``fields``.

    Raises:
        UsageError: a name is not a column of the view.
    """
    if not options.columns:
        return fields
    chosen = []
    for word in options.columns.split(","):
        field = view.named(word)
        if field is None:
            raise view.no_field("--columns", word.strip())
        chosen.append(field)
    return chosen
