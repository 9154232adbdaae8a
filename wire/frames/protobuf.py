"""Protobuf messages from bytes, by the rules of Java's generated code.

BookKeeper 4.18.0 parses with LightProto: a missing required field fails the whole message, an enum
number that it does not know counts as absent, unknown fields are skipped. What the Python runtimes
check, and what they raise, differs between them; so every message and every string that a peer or
a disk could have damaged is read through here.
"""

from __future__ import annotations

from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from wire.errors import BookKeeperError

AnyMessage = TypeVar("AnyMessage", bound=Message)


def parse(kind: type[AnyMessage], data: bytes, failure: type[BookKeeperError]) -> AnyMessage:
    """Return the message in ``data``.

    Raises:
        failure: the bytes are no such message, or a required field is missing.
    """
    message = kind()
    try:
        message.MergeFromString(data)
    except (DecodeError, ValueError, RecursionError) as error:
        raise failure(f"no {kind.__name__}: {error}") from error
    if not message.IsInitialized():
        # Typed for descriptors that mypy does not know of, hence the long way.
        missing = ", ".join(getattr(message, "FindInitializationErrors")())  # noqa: B009
        raise failure(f"{kind.__name__} lacks {missing}")
    return message


def text(value: str | bytes, failure: type[BookKeeperError]) -> str:
    """Return a string field's text; the C runtime returns bytes where the text is not UTF-8.

    Raises:
        failure: it is no UTF-8.
    """
    if isinstance(value, str):
        return value
    raise failure(f"no UTF-8: {value[:40]!r}")
