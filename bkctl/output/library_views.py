"""Where the values of classes below ``bkctl`` are told how they are shown.

These classes know nothing of tables, so a module of the folder whose commands print them says it
(``bkctl.output.views.declare_view``). Each has its line here, so that a command that prints one
needs to import nothing for it; a test holds the lines against what these modules declare.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

LIBRARY_VALUES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "bkclient.admin.sanity_checks.BookieCheck": "bkctl.commands.bookie.details",
        "bkclient.admin.sanity_checks.ClusterCheck": "bkctl.commands.cluster.status",
        "bkclient.admin.cookies.StoredCookie": "bkctl.commands.cookie.stored_cookies",
        "bkclient.config.findings.SettingFinding": "bkctl.commands.settings.config_files",
        "bkclient.metadata.api.HeldLock": "bkctl.commands.autorecovery.columns",
        "bkclient.repair.autorecovery.RemovedMark": "bkctl.commands.autorecovery.columns",
        "bkclient.repair.autorecovery.Mark": "bkctl.commands.autorecovery.columns",
        "bkclient.repair.autorecovery.Status": "bkctl.commands.autorecovery.columns",
        "bkclient.repair.decommission.DecommissionReport": "bkctl.commands.bookie.retire.columns",
        "bkclient.repair.decommission.DecommissionStatus": "bkctl.commands.bookie.retire.columns",
        "bkclient.repair.repair_states.LedgerRepairState": "bkctl.commands.autorecovery.columns",
        "bkclient.repair.recover_bookies.BookieLedger": "bkctl.commands.bookie.retire.columns",
        "bkclient.repair.recover_bookies.LedgerMove": "bkctl.commands.bookie.retire.columns",
        "bkclient.repair.recover_bookies.RecoverReport": "bkctl.commands.bookie.retire.columns",
        "bkclient.repair.verify.LedgerVerification": "bkctl.commands.ledger.replicas.columns",
        "bookied.offline.check.findings.DiskFinding": "bkctl.commands.disk.inspect.columns",
        "bookied.offline.files.BookieFile": "bkctl.commands.disk.inspect.columns",
        "bookied.offline.files.DirectoryUse": "bkctl.commands.disk.inspect.columns",
        "bookied.offline.journals.JournalVerdict": "bkctl.commands.disk.inspect.columns",
        "bookied.offline.logs.LogUse": "bkctl.commands.disk.inspect.columns",
        "bookied.offline.repair.rebuild_index.RebuiltLedger": "bkctl.commands.disk.repair.rebuild",
        "bookied.offline.repair.salvage.SalvagedLedger": "bkctl.commands.disk.repair.rebuild",
        "wire.records.cookie.CookieDifference": "bkctl.commands.cookie.stored_cookies",
    }
)
