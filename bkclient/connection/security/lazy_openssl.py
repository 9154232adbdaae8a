"""Twisted without OpenSSL until a connection begins TLS: loading it is a fifth of a short command.

Twisted's modules of TCP import those of TLS, and these import OpenSSL with all that belongs to it.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class _LateModule(ModuleType):
    """Stands for a module until something of it is used."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # The import system asks, and would load it at once.
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(import_module(self.__name__), name)


class _LateTls(_LateModule):
    def TLSMemoryBIOFactory(self, *args: Any) -> Any:  # noqa: N802 -- Twisted's, see startTLS
        return self.__getattr__("TLSMemoryBIOFactory")(*args)


def load_openssl_late() -> None:
    """Have OpenSSL loaded with the first use of TLS. For programs, before they import Twisted."""
    if "twisted.internet.tcp" not in sys.modules:
        for late in (_LateTls("twisted.protocols.tls"), _LateModule("twisted.internet.ssl")):
            sys.modules.setdefault(late.__name__, late)
