"""The table of Java's commands, against Java's own classes."""

from __future__ import annotations

import json

from tests.interop.peers.java_commands import VECTOR, java_commands
from tests.interop.peers.jvm import JavaVM


def test_the_commands_that_are_known_are_those_java_has(java_vm: JavaVM) -> None:
    assert java_commands(java_vm.start()) == json.loads(VECTOR.read_text())
