"""The modules that declare the views of classes outside ``bkctl``.

These classes do not know about tables. A module in the folder of the commands that print them
calls ``bkctl.output.views.declare_view``. Each class has its line in this mapping, so a command
that prints its values need not import that module. A test compares the lines with the modules'
declarations.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

_AUTORECOVERY: Final = "bkctl.commands.autorecovery.columns"
_REBUILD_INDEX: Final = "bkctl.commands.disk.repair.rebuild_index"
_REPLICAS: Final = "bkctl.commands.ledger.replicas.columns"
_RETIRE: Final = "bkctl.commands.bookie.retire.columns"

LIBRARY_VALUES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "bkclient.admin.sanity_checks.BookieCheck": "bkctl.commands.bookie.details",
        "bkclient.admin.sanity_checks.ClusterCheck": "bkctl.commands.cluster.status",
        "bkclient.admin.cookies.StoredCookie": "bkctl.commands.cookie.stored_cookies",
        "bkclient.config.findings.SettingFinding": "bkctl.commands.settings.config_files",
        "bkclient.metadata.versions_and_watches.HeldLock": _AUTORECOVERY,
        "bkclient.replication.autorecovery_admin.RemovedMark": _AUTORECOVERY,
        "bkclient.replication.autorecovery_admin.Mark": _AUTORECOVERY,
        "bkclient.replication.autorecovery_admin.Status": _AUTORECOVERY,
        "bkclient.replication.compare_copies.EntryCopy": _REPLICAS,
        "bkclient.replication.decommission.DecommissionReport": _RETIRE,
        "bkclient.replication.decommission.DecommissionStatus": _RETIRE,
        "bkclient.replication.repair_states.LedgerRepairState": _AUTORECOVERY,
        "bkclient.replication.recover_bookies.BookieLedger": _RETIRE,
        "bkclient.replication.recover_bookies.LedgerMove": _RETIRE,
        "bkclient.replication.recover_bookies.RecoverReport": _RETIRE,
        "bkclient.replication.ledger_verification.LedgerVerification": _REPLICAS,
        "bookied.offline.check.findings.DiskFinding": "bkctl.commands.disk.inspect.columns",
        "bookied.offline.files.BookieFile": "bkctl.commands.disk.inspect.columns",
        "bookied.offline.files.DirectoryUse": "bkctl.commands.disk.inspect.columns",
        "bookied.offline.journals.JournalVerdict": "bkctl.commands.disk.inspect.columns",
        "bookied.offline.entry_logs.LogUse": "bkctl.commands.disk.inspect.columns",
        "bookied.offline.repair.rebuild_index.RebuiltLedger": _REBUILD_INDEX,
        "bookied.offline.repair.salvage.SalvagedLedger": "bkctl.commands.disk.repair.salvage",
        "wire.records.cookie.CookieDifference": "bkctl.commands.cookie.stored_cookies",
    }
)
