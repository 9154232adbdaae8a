"""Protobuf messages from bytes, by the rules of Java's generated code.

BookKeeper 4.18.0 parses with LightProto: a missing required field fails the message, an unknown
enum number counts as absent, and unknown fields are skipped. The Python runtimes differ in their
checks and errors. So every message and string that a peer or a disk may have damaged is parsed by
this module.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

from google.protobuf.message import DecodeError, Message

from wire.errors import BookKeeperError

AnyMessage = TypeVar("AnyMessage", bound=Message)

FIELDS_MAX: Final = 256
"""Fields of a large message, including those of nested messages. No client sends 30."""

UNCOUNTED_BYTES: Final = 4096
"""A message up to this size is parsed in 60 µs, whatever its fields."""

FIELD_BYTES_MAX: Final = 64 * 1024
"""The longest field of a large message besides an entry (``body``). Clients' keys have 20 bytes."""

_VARINT_BYTES_MAX: Final = 10
_CONTINUES: Final = 0x80
_VARINT, _FIXED_64, _BYTES, _FIXED_32 = 0, 1, 2, 5  # Wire types; 3 and 4 are groups.


def require_few_fields(
    kind: type[Message], data: bytes, failure: type[BookKeeperError], *, is_begin: bool = False
) -> None:
    """Refuse a large message of many small fields, which would take 100 ms to parse.

    An entry of 5 MiB takes one copy; 5 MiB in fields of two bytes take 2.6 million decisions. Other
    long fields are refused too: an unknown field of 5 MiB takes 20 ms.
    Groups, which BookKeeper's messages do not have, are refused in a large message. ``is_begin``
    says that more bytes follow: then an incomplete field is not refused.

    Raises:
        failure: more than ``FIELDS_MAX`` fields, a group, or a field that is too long or not
            complete.
    """
    if len(data) <= UNCOUNTED_BYTES:
        return
    parts: list[tuple[Any, int, int]] = [(kind.DESCRIPTOR, 0, len(data))]
    fields = 0
    while parts:
        message, at, end = parts.pop()
        while at < end:
            fields += 1
            if fields > FIELDS_MAX:
                raise failure(f"{kind.__name__} of {len(data)} bytes has over {FIELDS_MAX} fields")
            begin, stop, tag = _field(data, at, failure)
            field = message.fields_by_number.get(tag >> 3) if tag & 7 == _BYTES else None
            is_message = field is not None and field.message_type is not None
            may_be_long = is_message or (field is not None and field.name == "body")
            if stop - begin > FIELD_BYTES_MAX and not may_be_long:
                raise failure(f"{kind.__name__} has a field of {stop - begin} bytes")
            if stop > end:
                if not is_begin:
                    raise failure(f"{kind.__name__} has an incomplete field at byte {at}")
                stop = end
            if field is not None and is_message:
                parts.append((field.message_type, begin, stop))
            at = stop


def _field(data: bytes, at: int, failure: type[BookKeeperError]) -> tuple[int, int, int]:
    """Return begin and end of the value of the field at ``at``, and the field's tag."""
    tag, begin = _varint(data, at, failure)
    wire_type = tag & 7
    if wire_type == _VARINT:
        return begin, _varint(data, begin, failure)[1], tag
    if wire_type == _BYTES:
        size, begin = _varint(data, begin, failure)
        return begin, begin + size, tag
    if wire_type == _FIXED_64:
        return begin, begin + 8, tag
    if wire_type == _FIXED_32:
        return begin, begin + 4, tag
    raise failure(f"a field of wire type {wire_type} at byte {at}")


def _varint(data: bytes, at: int, failure: type[BookKeeperError]) -> tuple[int, int]:
    """Return a number and its end; if bytes are missing, the end is after the last byte."""
    if at < len(data) and data[at] < _CONTINUES:
        return data[at], at + 1
    value = 0
    encoded = data[at : at + _VARINT_BYTES_MAX]
    for index, byte in enumerate(encoded):
        value |= (byte & 0x7F) << 7 * index
        if byte < _CONTINUES:
            return value, at + index + 1
    if len(encoded) == _VARINT_BYTES_MAX:
        raise failure(f"no number at byte {at}")
    return value, len(data) + 1


def parse(kind: type[AnyMessage], data: bytes, failure: type[BookKeeperError]) -> AnyMessage:
    """Return the message in ``data``.

    Raises:
        failure: the bytes are not a valid message, or a required field is missing.
    """
    message = kind()
    try:
        message.MergeFromString(data)
    except (DecodeError, ValueError, RecursionError) as error:
        raise failure(f"no {kind.__name__}: {error}") from error
    if not message.IsInitialized():
        # mypy does not know this method of the descriptors.
        missing = ", ".join(getattr(message, "FindInitializationErrors")())  # noqa: B009
        raise failure(f"{kind.__name__} lacks {missing}")
    return message


def text(value: str | bytes, failure: type[BookKeeperError]) -> str:
    """Return a string field's text; the C runtime returns bytes if the text is not UTF-8.

    Raises:
        failure: the field is not UTF-8.
    """
    if isinstance(value, str):
        return value
    raise failure(f"no UTF-8: {value[:40]!r}")
