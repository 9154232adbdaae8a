from __future__ import annotations

import pytest

from bkctl.commands.ledger.entry_output import for_terminal, formatted, hexdump, unescape
from bkctl.commands.ledger.input_cutting import FramingError


def test_a_hexdump_names_the_entry_and_shows_bytes_and_text() -> None:
    assert hexdump(7, 3, b"0123456789abcdef\x00z").decode().splitlines() == [
        "ledger 7 entry 3: 18 bytes",
        "00000000  30 31 32 33 34 35 36 37  38 39 61 62 63 64 65 66  |0123456789abcdef|",
        "00000010  00 7a                                             |.z|",
    ]


@pytest.mark.parametrize("payload", [b"\x1b[2J", b"\xff\xfe", b"a\0b", "\x9b2J".encode()])
def test_what_could_upset_a_terminal_becomes_a_hexdump(payload: bytes) -> None:
    assert for_terminal(1, 2, payload) == hexdump(1, 2, payload)


def test_text_goes_to_a_terminal_as_it_is() -> None:
    assert for_terminal(1, 2, "größer\t→ 2".encode()) == "größer\t→ 2\n".encode()


def test_a_format_has_ledger_entry_size_and_payload() -> None:
    assert formatted(r"%l/%e\t%n%% %s\n")(7, 3, b"hi\0") == b"7/3\t3% hi\0\n"


@pytest.mark.parametrize("pattern", ["%x", "abc%", "%l %"])
def test_a_format_with_another_percent_is_refused(pattern: str) -> None:
    with pytest.raises(FramingError, match="means nothing"):
        formatted(pattern)


@pytest.mark.parametrize("pattern", ["raw", "", "100%%"])
def test_a_format_without_a_field_of_the_entry_is_refused(pattern: str) -> None:
    with pytest.raises(FramingError, match="has no field of an entry"):
        formatted(pattern)


def test_escapes_are_those_people_know() -> None:
    assert unescape(r"a\tb\n\0\\\q") == b"a\tb\n\0\\\\q"
