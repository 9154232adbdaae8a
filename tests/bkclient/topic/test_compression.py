"""Payloads are unpacked to the size that stands beside them, and never further."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkclient.topic.compression import MESSAGE_BYTES_MAX, decompress
from bkclient.topic.names import TopicFormatError
from tests.bkclient.topic.entries import COMPRESS

CODECS = st.sampled_from(sorted(COMPRESS))


@given(codec=CODECS, data=st.binary(max_size=5000))
def test_what_was_compressed_comes_back(codec: int, data: bytes) -> None:
    assert decompress(COMPRESS[codec](data), codec, len(data)) == data


@given(codec=st.integers(1, 4), size=st.integers(1, 1 << 16), data=st.binary(max_size=200))
def test_damaged_data_is_an_error_and_never_larger_than_said(
    codec: int, size: int, data: bytes
) -> None:
    with contextlib.suppress(TopicFormatError):
        assert len(decompress(data, codec, size)) == size


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
@pytest.mark.parametrize("size", [1, 999, 1001])
def test_another_size_than_said_is_damage(codec: int, size: int) -> None:
    packed = COMPRESS[codec](b"x" * 1000)
    if codec == 2 and size < 1000:
        assert len(decompress(packed, codec, size)) == size  # It ends where it must.
        return
    with pytest.raises(TopicFormatError):
        decompress(packed, codec, size)


def test_sizes_and_codecs_that_cannot_be_are_refused() -> None:
    with pytest.raises(TopicFormatError, match="limit"):
        decompress(b"", 1, MESSAGE_BYTES_MAX + 1)
    with pytest.raises(TopicFormatError, match="codec 9"):
        decompress(b"", 9, 1)
