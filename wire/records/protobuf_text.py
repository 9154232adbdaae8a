"""Protobuf's text form, as BookKeeper stores it, with the tolerance of its Java parser.

Unknown fields are skipped and repeated scalars overwrite; numeric enum values are refused.
Agrees with BookKeeper 4.18.0 (its generated parser; see the vectors).
"""

from __future__ import annotations

import re
from typing import Final, TypeVar

from google.protobuf import text_format
from google.protobuf.message import Message

from wire.errors import FormatError

M = TypeVar("M", bound=Message)

_STRING_OR_COMMENT: Final = re.compile(
    rb"\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|#[^\n]*", re.DOTALL
)
_NUMERIC_ENUM: Final = re.compile(rb"\b(?:state|digestType)\s*:\s*[-+0-9]")

_SAID_CHARS_MAX: Final = 200


def parse(data: bytes, message: M) -> M:
    """Fill ``message`` from its text form and return it.

    Raises:
        FormatError: the text is invalid, or a required field is missing.
    """
    # Text in a string or a comment is not a field.
    if _NUMERIC_ENUM.search(_STRING_OR_COMMENT.sub(b" ", data)):
        raise FormatError("an enum is given by number")
    try:
        text_format.Merge(data, message, allow_unknown_field=True)
    except (text_format.ParseError, ValueError, RecursionError) as error:
        said = str(error)
        # The error quotes the line and the word, which may be long.
        if len(said) > _SAID_CHARS_MAX:
            said = f"{said[: _SAID_CHARS_MAX // 2]} ... {said[-_SAID_CHARS_MAX // 2 :]}"
        raise FormatError(f"no {message.DESCRIPTOR.name} in text form: {said}") from error
    return message


def write(message: Message) -> bytes:
    """Return the text form as Java writes it: a field a line, non-ASCII as octal escapes."""
    return text_format.MessageToString(message, as_utf8=False).encode("ascii")
