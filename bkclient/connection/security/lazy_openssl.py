"""Twisted without OpenSSL until a connection uses TLS: its import takes a fifth of a command.

Twisted's TCP modules import its TLS modules, and these import OpenSSL.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class _LateModule(ModuleType):
    """A placeholder for a module that is imported at its first use."""

    def __getattr__(self, name: str) -> Any:
        # The import system reads these names, and would import the module at once.
        if name.startswith("__"):
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(import_module(self.__name__), name)


class _LateTls(_LateModule):
    def TLSMemoryBIOFactory(self, *args: Any) -> Any:  # noqa: N802 -- Twisted's, see startTLS
        return self.__getattr__("TLSMemoryBIOFactory")(*args)


def load_openssl_late() -> None:
    """Import OpenSSL at the first use of TLS. Programs call this before they import Twisted."""
    if "twisted.internet.tcp" not in sys.modules:
        for late in (_LateTls("twisted.protocols.tls"), _LateModule("twisted.internet.ssl")):
            sys.modules.setdefault(late.__name__, late)
