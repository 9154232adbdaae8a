"""Compressed payloads in the codecs of Pulsar 4.0 (CompressionCodecProvider), of limited size.

====== ======= ==========================================
number name    form
====== ======= ==========================================
0      NONE    uncompressed
1      LZ4     one block, without the size in front
2      ZLIB    RFC 1950
3      ZSTD    frames
4      SNAPPY  raw, without framing
====== ======= ==========================================

The metadata beside the payload has its uncompressed size. The output is never larger.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any, Final

from bkclient.topic.names import CodecMissingError, TopicFormatError

NAMES: Final = ("NONE", "LZ4", "ZLIB", "ZSTD", "SNAPPY")

MESSAGE_BYTES_MAX: Final = 256 << 20
"""Bytes of the largest uncompressed message. Pulsar's default is 5 MiB, before compression."""

_NONE: Final = 0


def decompress(data: bytes, codec: int, size: int) -> bytes:
    """Decompress ``data`` to its ``size`` bytes.

    Raises:
        TopicFormatError: the codec is unknown, or the data is damaged or has another size.
        CodecMissingError: the codec's library is not installed.
    """
    if codec == _NONE:
        return data
    if not 0 < codec < len(NAMES):
        raise TopicFormatError(f"compressed by codec {codec}, which is unknown")
    if size > MESSAGE_BYTES_MAX:
        raise TopicFormatError(f"{size} bytes uncompressed; the limit is {MESSAGE_BYTES_MAX}")
    if size == 0:
        return b""
    found = _CODECS[codec](data, size)
    if len(found) != size:
        raise TopicFormatError(f"{NAMES[codec]} holds {len(found)} bytes instead of {size}")
    return found


def _zlib(data: bytes, size: int) -> bytes:
    try:
        return zlib.decompressobj().decompress(data, size)
    except zlib.error as error:
        raise TopicFormatError(f"damaged ZLIB data: {error}") from error


def _cramjam(name: str, into: Callable[[Any], Callable[[bytes, bytearray], int]]) -> Any:
    def decode(data: bytes, size: int) -> bytes:
        try:
            import cramjam
        except ImportError as error:
            raise CodecMissingError(f"{name} needs the library cramjam") from error
        out = bytearray(size)
        try:
            filled = into(cramjam)(data, out)
        except cramjam.DecompressionError as error:
            raise TopicFormatError(f"damaged {name} data: {error}") from error
        return bytes(out) if filled == size else bytes(out[:filled])

    return decode


_CODECS: Final[dict[int, Callable[[bytes, int], bytes]]] = {
    1: _cramjam("LZ4", lambda library: library.lz4.decompress_block_into),
    2: _zlib,
    3: _cramjam("ZSTD", lambda library: library.zstd.decompress_into),
    4: _cramjam("SNAPPY", lambda library: library.snappy.decompress_raw_into),
}
