"""A stand-in for the process's streams: texts in memory that can claim to be a terminal."""

from __future__ import annotations

import io
from collections.abc import Mapping

from bkctl.host import Host


class Stream(io.TextIOWrapper):
    """A text stream in memory."""

    def __init__(self, text: str = "", *, tty: bool = False) -> None:
        super().__init__(io.BytesIO(text.encode()), encoding="utf-8", write_through=True)
        self._tty = tty

    def isatty(self) -> bool:
        return self._tty

    @property
    def data(self) -> bytes:
        buffer: object = self.buffer
        assert isinstance(buffer, io.BytesIO)
        return buffer.getvalue()

    @property
    def text(self) -> str:
        return self.data.decode()


class FakeHost(Host):
    """A host whose streams are in memory; ``tty`` says whether somebody sits there."""

    def __init__(
        self, typed: str = "", *, tty: bool = False, environ: Mapping[str, str] | None = None
    ) -> None:
        self.out, self.err = Stream(tty=tty), Stream(tty=tty)
        super().__init__(
            environ=environ or {}, stdin=Stream(typed, tty=tty), stdout=self.out, stderr=self.err
        )

    def elapsed_s(self) -> float:
        """Stand still: how fast the machine is changes nothing that is printed."""
        return 0.0
