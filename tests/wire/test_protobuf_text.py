"""Damage in protobuf's text form is reported in few words, however much of it there is."""

from __future__ import annotations

import pytest

from wire.errors import FormatError
from wire.pb import data_formats_pb2 as pb
from wire.records import protobuf_text


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"quorumSize: 1" + b"0" * 500_000, "quorumSize"),
        (b"state: " + b"x" * 500_000, "state"),
        (b"quorumSize: 1 state: OPEN " + b"x" * 500_000, "text form"),
        (b"quorumSize: twelve", "Couldn't parse integer: twelve"),
    ],
)
def test_an_error_quotes_little_of_what_cannot_be_read(data: bytes, reason: str) -> None:
    with pytest.raises(FormatError) as caught:
        protobuf_text.parse(data, pb.LedgerMetadataFormat())
    assert reason in str(caught.value)
    assert len(str(caught.value)) < 300
