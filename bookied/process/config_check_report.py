"""The output and exit status of ``bookied --check-config``."""

from __future__ import annotations

import sys
from typing import Final

from bkclient.config.client import ClientConfig
from bkclient.config.findings import Findings, Severity
from bkclient.connection.security.file_checks import check_files
from bookied.config.bookie import BookieConfig, worst
from bookied.errors import BookieExitStatus
from bookied.process.command_line import DaemonOptions

_STATUS_OF_CHECK: Final = {
    Severity.NOTE: BookieExitStatus.OK,
    Severity.WARNING: BookieExitStatus.WARNINGS,
    Severity.ERROR: BookieExitStatus.PROBLEMS,
}
"""The exit statuses, as of ``bkctl config check``."""


def check_config(
    options: DaemonOptions,
    config: BookieConfig,
    client_config: ClientConfig | None,
    findings: Findings,
) -> int:
    """Print the problems of the settings and of the files that they name.

    Return the exit status.
    """
    if not options.autorecovery_only:
        findings = (*findings, *check_files(config))
    if client_config is not None:
        own = (one for one in check_files(client_config) if one not in findings)
        findings = (*findings, *own)
    return show_findings(findings)


def show_findings(findings: Findings) -> int:
    """Print the findings, and whether the settings can be used; return the exit status."""
    for found in findings:
        sys.stdout.write(f"{found.severity.value}: {found}\n")
    worst_of_all = worst(findings)
    can = "cannot" if worst_of_all is Severity.ERROR else "can"
    sys.stdout.write(f"the settings {can} be used\n")
    return _STATUS_OF_CHECK[worst_of_all]
