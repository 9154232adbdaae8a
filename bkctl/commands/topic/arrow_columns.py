"""Messages of topics as Arrow columns, for the files of ``bkctl topic export`` and for Spark."""

from __future__ import annotations

import base64
import datetime as dt
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import accumulate, chain, groupby
from typing import TYPE_CHECKING, Any, Final, cast

import attrs

from bkclient.topic.batches.uniform_batch import EvenColumn, EvenNumbers, EvenValues, RepeatedColumn
from bkclient.topic.messages import DEFAULTS, EntryMessages
from bkctl.commands.topic.arrow_schema import DECODED
from bkctl.parse_quantities import FIRST_MS, LAST_MS

if TYPE_CHECKING:
    import pyarrow as pa


ROWS_AT_ONCE: Final = 8192
BYTES_AT_ONCE: Final = 4 * 1024 * 1024
"""An Arrow batch ends at the first of these two limits."""

EVEN_ROWS_MIN: Final = 100
"""Number of values below which Python objects are faster."""


def record_batches(
    found: Iterable[Sequence[EntryMessages]],
    schema: pa.Schema,
    *,
    rows_at_once: int = ROWS_AT_ONCE,
    bytes_at_once: int = BYTES_AT_ONCE,
) -> Iterator[pa.RecordBatch]:
    """Yield batches of messages, one row each, with the columns of a ``topic_schema``.

    A batch ends with an entry, at ``rows_at_once`` messages or ``bytes_at_once`` of payload.
    """
    entries: list[EntryMessages] = []
    rows = size_bytes = 0
    for some in found:
        for one in some:
            entries.append(one)
            rows += one.count
            size_bytes += one.size_bytes
            if rows >= rows_at_once or size_bytes >= bytes_at_once:
                yield _record_batch(entries, schema)
                entries, rows, size_bytes = [], 0, 0
    if rows:
        yield _record_batch(entries, schema)


def _record_batch(entries: Sequence[EntryMessages], schema: pa.Schema) -> pa.RecordBatch:
    import pyarrow as pa

    entries = [one for one in entries if one.count]
    indices = cache(lambda: _entry_indices(entries))
    arrays = [_array(entries, indices, field) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _entry_indices(entries: Sequence[EntryMessages]) -> pa.Array | None:
    """Return the index of each message's entry; None if each entry is one message."""
    if all(one.count == 1 for one in entries):
        return None
    return _indices([one.count for one in entries])


def _indices(counts: Sequence[int]) -> pa.Array:
    """Return each index of ``counts``, repeated by its count."""
    import pyarrow as pa
    import pyarrow.compute as pc

    ends = pa.array(accumulate(counts), pa.int32())
    numbers = pa.array(range(len(counts)), pa.int32())
    return pc.run_end_decode(pa.RunEndEncodedArray.from_arrays(ends, numbers))


def _array(
    entries: Sequence[EntryMessages], indices: Callable[[], pa.Array | None], field: pa.Field
) -> pa.Array:
    import pyarrow as pa

    name = f"{field.name}_ms" if pa.types.is_timestamp(field.type) else field.name
    if any(name in one.each for one in entries):
        arrays = [_of_run(list(run), shape, name, field) for shape, run in _runs(entries, name)]
        return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)
    default = DEFAULTS[name]
    shared = _of_objects([one.common.get(name, default) for one in entries], field)
    found = indices()
    return shared if found is None else shared.take(found)


def _each(entries: Iterable[EntryMessages], name: str) -> list[Any]:
    """Return a column as a list."""
    values: list[Any] = []
    for one in entries:
        column = one.each.get(name)
        if column is not None:
            values += column
        else:
            values += [one.common.get(name, DEFAULTS[name])] * one.count
    return values


def _of_objects(values: list[Any], field: pa.Field) -> pa.Array:
    import pyarrow as pa

    if pa.types.is_timestamp(field.type):
        return _times(pa.array(values, pa.int64()), field)
    if field.name == "properties":
        return _maps(values)
    if field.name == DECODED:
        values = [_text(one) for one in values]
    return pa.array(values, field.type)


def _maps(values: Sequence[Mapping[str, str]]) -> pa.Array:
    import pyarrow as pa

    ends = pa.array(accumulate(map(len, values), initial=0), pa.int32())
    names = pa.array(chain.from_iterable(values), pa.string())
    texts = pa.array(chain.from_iterable(one.values() for one in values), pa.string())
    return pa.MapArray.from_arrays(ends, names, texts)


def _times(numbers: pa.Array, field: pa.Field) -> pa.Array:
    """Return ms since 1970 as times, limited to the range of Spark and Python."""
    import pyarrow as pa
    import pyarrow.compute as pc

    times = pc.min_element_wise(numbers, LAST_MS, skip_nulls=False)
    times = pc.max_element_wise(times, FIRST_MS, skip_nulls=False)
    return times.cast(pa.timestamp("ms", tz="UTC")).cast(field.type)


def _runs(
    entries: Iterable[EntryMessages], name: str
) -> Iterable[tuple[tuple[int, ...] | None, Iterable[EntryMessages]]]:
    """Yield the entries in groups whose columns have one shape.

    None for columns without a shape.
    """

    def shape(one: EntryMessages) -> tuple[int, ...] | None:
        column = one.each.get(name)
        return column.shape if isinstance(column, EvenColumn | RepeatedColumn) else None

    return groupby(entries, shape)


def _of_run(
    run: list[EntryMessages], shape: tuple[int, ...] | None, name: str, field: pa.Field
) -> pa.Array:
    import pyarrow as pa

    if shape is None or sum(one.count for one in run) < EVEN_ROWS_MIN:
        return _of_objects(_each(run, name), field)
    found = [one.each[name] for one in run]
    if repeated := [one for one in found if isinstance(one, RepeatedColumn)]:
        return pa.concat_arrays([_repeated(one, field) for one in repeated])
    columns = cast("list[EvenColumn[Any]]", found)
    joined = attrs.evolve(columns[0], payload=b"".join(one.payload for one in columns))
    if isinstance(joined, EvenNumbers):
        numbers = _even_numbers(joined)
        return _times(numbers, field) if pa.types.is_timestamp(field.type) else numbers
    assert isinstance(joined, EvenValues), joined
    return _even_values(joined)


def _repeated(column: RepeatedColumn[Any], field: pa.Field) -> pa.Array:
    counts = [column.times] * len(column.items)
    return _of_objects(list(column.items), field).take(_indices(counts))


def _even_values(values: EvenValues) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    buffers = [None, pa.py_buffer(values.payload)]
    messages = pa.Array.from_buffers(pa.binary(values.stride), len(values), buffers)
    return pc.binary_slice(messages, values.begin).cast(pa.binary())


def _even_numbers(numbers: EvenNumbers) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    found = pa.repeat(pa.scalar(0, pa.int64()), len(numbers))
    for at in range(numbers.size):
        buffers = [None, pa.py_buffer(numbers.column(at))]
        encoded = pa.Array.from_buffers(pa.uint8(), len(numbers), buffers)
        bits = pc.bit_wise_and(encoded, pa.scalar(0x7F, pa.uint8())).cast(pa.int64())
        found = pc.bit_wise_or(found, pc.shift_left(bits, 7 * at))
    return found


def _text(decoded: Any) -> str | None:
    """Return a decoded value as the text of the column: a string as it is, other values as JSON."""
    if decoded is None or isinstance(decoded, str):
        return decoded
    try:
        return json.dumps(decoded, default=plain, ensure_ascii=False, allow_nan=False)
    except ValueError:
        return json.dumps(plain(decoded), ensure_ascii=False)


def plain(value: Any) -> Any:
    """Return a value of Avro as a value of JSON.

    Bytes become Base64, times ISO 8601; NaN and the infinities become strings.
    """
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, list):
        return [plain(one) for one in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else NOT_FINITE[str(value)]
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    return value.isoformat() if isinstance(value, dt.date | dt.time) else str(value)


NOT_FINITE: Final = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
"""Floats without a number in JSON, as in Spark's ``to_json`` and Avro's JSON."""
