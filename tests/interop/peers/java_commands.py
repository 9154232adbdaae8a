"""The commands of Java's tools and their options, asked of Java's own classes.

``python -m tests.interop.peers.java_commands`` writes them to ``tests/vectors/java_commands.json``.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any, Final

from tests.interop.peers.jvm import JavaVM

VECTOR: Final = Path(__file__).parents[2] / "vectors" / "java_commands.json"

GROUPS: Final = {
    "autorecovery": ("autorecovery", (
        "ListUnderReplicated", "LostBookieRecoveryDelay", "Toggle", "TriggerAudit", "WhoIsAuditor",
    )),
    "bookie": ("bookie", (
        "CheckDBLedgersIndex", "ConvertToDBStorage", "ConvertToInterleavedStorage", "FlipBookieId",
        "Format", "Init", "LastMark", "Ledger", "ListFilesOnDisc", "ListLedgers",
        "LocalConsistencyCheck", "ReadJournal", "ReadLedger", "ReadLog", "ReadLogMetadata",
        "RebuildDBLedgerLocationsIndex", "RebuildDBLedgersIndex",
        "RegenerateInterleavedStorageIndexFile", "SanityTest", "bookies.EndpointInfo",
    )),
    "bookies": ("bookies", (
        "Decommission", "Info", "Init", "InstanceId", "ListBookies", "MetaFormat",
        "NukeExistingCluster", "Recover",
    )),
    "cookie": ("cookie", (
        "Admin", "CreateCookie", "DeleteCookie", "GenerateCookie", "GetCookie", "UpdateCookie",
    )),
    "healthCheck": ("health", ("SwitchOfHealthCheck",)),
    "ledger": ("client", ("DeleteLedger", "LedgerMetaData", "SimpleTest")),
}  # fmt: skip
"""Java bkctl's groups: package and classes. Its ``bookieid`` is in a jar that is not here."""


def java_commands(vm: JavaVM) -> dict[str, list[str]]:
    """Return the options of every command, without dashes; groups as ``group command``."""
    return dict(sorted({**_of_shell(vm), **_of_groups(vm)}.items()))


def _of_shell(vm: JavaVM) -> dict[str, list[str]]:
    """Ask the shell's own table, which it keeps to itself."""
    commands = vm.field(vm.bookkeeper.bookie.BookieShell(), "commands")
    found = {}
    for name in commands.keySet():
        command = commands.get(name)
        if str(name).startswith("cookie_"):
            continue  # JCommander's; the group ``cookie`` has the same ones.
        options = _declared(command.getClass(), "opts")
        options.setAccessible(True)
        found[str(name)] = sorted(
            spelled
            for option in vm.java.util.ArrayList(options.get(command).getOptions())
            for spelled in (option.getOpt(), option.getLongOpt())
            if spelled
        )
    return found


def _declared(kind: Any, name: str) -> Any:
    while kind is not None:
        for field in kind.getDeclaredFields():
            if field.getName() == name:
                return field
        kind = kind.getSuperclass()
    raise AssertionError(name)


def _of_groups(vm: JavaVM) -> dict[str, list[str]]:
    found = {}
    for group, (package, classes) in GROUPS.items():
        for name in classes:
            inner, _, simple = name.rpartition(".")
            home = f"org.apache.bookkeeper.tools.cli.commands.{inner or package}"
            kind = vm.java.lang.Class.forName(f"{home}.{simple}Command")
            spec = _declared(kind, "spec")
            spec.setAccessible(True)
            made = spec.get(kind.getConstructor(None).newInstance(None))
            known = vm.gateway.jvm.com.beust.jcommander.JCommander(made.flags()).getParameters()
            found[f"{group} {made.name()}"] = sorted(
                spelled.lstrip("-") for one in known for spelled in one.getNames().split(", ")
            )
    return found


def main() -> None:
    """Write the vector."""
    with tempfile.TemporaryDirectory() as directory:
        vm = JavaVM(Path(directory)).start()
        try:
            text = json.dumps(java_commands(vm), indent=1)
        finally:
            vm.kill()
    VECTOR.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
