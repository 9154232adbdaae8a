"""An offloader for a real Pulsar broker: the central repository has none of Pulsar's own.

It reads the ledger and stores nothing. So what the broker notes about an offloaded ledger, and what
it deletes, is real; the broker itself can read the ledger only from bookies.
"""

from __future__ import annotations

import shutil
import subprocess
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

DRIVER: Final = "filesystem"
"""One of the names that a broker accepts."""

_SOURCE: Final = """
import java.io.IOException;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import org.apache.bookkeeper.client.api.*;
import org.apache.bookkeeper.common.util.OrderedScheduler;
import org.apache.bookkeeper.mledger.*;
import org.apache.pulsar.common.policies.data.*;

public record ReadingOffloader(OffloadPoliciesImpl policies) implements LedgerOffloader {
    public static class Factory implements LedgerOffloaderFactory<ReadingOffloader> {
        public boolean isDriverSupported(String name) { return true; }

        public ReadingOffloader create(OffloadPoliciesImpl policies, Map<String, String> metadata,
                OrderedScheduler scheduler) {
            return new ReadingOffloader(policies);
        }

        public ReadingOffloader create(OffloadPoliciesImpl policies, Map<String, String> metadata,
                OrderedScheduler scheduler, LedgerOffloaderStats stats) {
            return new ReadingOffloader(policies);
        }
    }

    public String getOffloadDriverName() { return "DRIVER"; }

    public CompletableFuture<Void> offload(ReadHandle ledger, UUID id, Map<String, String> more) {
        return ledger.readAsync(0, ledger.getLastAddConfirmed()).thenAccept(LedgerEntries::close);
    }

    public CompletableFuture<ReadHandle> readOffloaded(long id, UUID uuid, Map<String, String> m) {
        return CompletableFuture.failedFuture(new IOException("nothing is stored"));
    }

    public CompletableFuture<Void> deleteOffloaded(long id, UUID uuid, Map<String, String> more) {
        return CompletableFuture.completedFuture(null);
    }

    public OffloadPolicies getOffloadPolicies() { return policies; }

    public void close() {}
}
""".replace("DRIVER", DRIVER)

_SERVICE: Final = """name: reading
description: reads, and stores nothing
offloaderFactoryClass: ReadingOffloader$Factory
"""


def offloader_settings(jars: Sequence[Path], directory: Path) -> dict[str, Any]:
    """Compile the offloader into ``directory``; return the settings with which a broker loads it.

    The broker deletes an offloaded ledger from the bookies at once. Without ``javac`` there are no
    settings.
    """
    compiler = shutil.which("javac")
    if compiler is None:
        return {}
    source, classes = directory / "ReadingOffloader.java", directory / "classes"
    source.write_text(_SOURCE, encoding="utf-8")
    class_path = ":".join(map(str, jars))
    command = [compiler, "-proc:none", "-d", str(classes), "-cp", class_path, str(source)]
    subprocess.run(command, check=True, timeout=300)
    jar, archives = directory / "offloader.jar", directory / "offloaders"
    with zipfile.ZipFile(jar, "w") as archive:
        for path in classes.iterdir():
            archive.write(path, path.name)
    archives.mkdir()
    with zipfile.ZipFile(archives / "reading.nar", "w") as archive:
        archive.writestr("META-INF/MANIFEST.MF", "Manifest-Version: 1.0\n")
        archive.writestr("META-INF/services/pulsar-offloader.yaml", _SERVICE)
        archive.write(jar, f"META-INF/bundled-dependencies/{jar.name}")
    return {
        "managedLedgerOffloadDriver": DRIVER,
        "managedLedgerOffloadDeletionLagMs": "0",
        "managedLedgerDataReadPriority": "bookkeeper-first",
        "offloadersDirectory": str(archives),
        "narExtractionDirectory": str(directory),
    }
