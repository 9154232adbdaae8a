"""The names after ``bkctl``: the module of each, its line in the help, and its section.

The help imports none of their modules. A test compares each line with the command's own, and
checks that the help fits one screen.
"""

from __future__ import annotations

from typing import Final

_AT: Final = "bkctl.commands"

COMMANDS: Final = {
    "ledger": (
        f"{_AT}.ledger.commands:ledger",
        "Ledgers: create, add, read, close, recover, delete.",
    ),
    "log": (f"{_AT}.log.commands:log", "Logs: endless sequences made of ledgers."),
    "topic": (f"{_AT}.topic.commands:topic", "Pulsar topics, read without a broker."),
    "export": (f"{_AT}.export.commands:export", "Export ledgers to Parquet."),
    "spark": (f"{_AT}.export.commands:spark", "Spark: pack what its workers need."),
    "fence": (f"{_AT}.ledger.commands:fence", "Short for `ledger fence`."),
    "cluster": (
        f"{_AT}.cluster.commands:cluster",
        "The cluster as a whole: create, inspect, back up, remove.",
    ),
    "bookie": (f"{_AT}.bookie.commands:bookie", "Bookies: list, inspect, change, remove."),
    "cookie": (
        f"{_AT}.cookie.commands:cookie",
        "Cookies: what ties a bookie's id to its directories.",
    ),
    "top": (f"{_AT}.load.commands:top", "Watch the load of the cluster and of each bookie."),
    "metaformat": (
        f"{_AT}.cluster.commands:metaformat",
        "Short for `cluster format`, with Java's options.",
    ),
    "doctor": (
        f"{_AT}.doctor.commands:doctor",
        "Report what is wrong with a cluster, the worst first.",
    ),
    "autorecovery": (
        f"{_AT}.autorecovery.commands:autorecovery",
        "Autorecovery: re-replicate ledgers after a bookie is lost.",
    ),
    "recover": (
        f"{_AT}.bookie.retire.commands:recover_either",
        "Short for `bookie recover`; with a number `ledger recover`.",
    ),
    "decommission": (
        f"{_AT}.bookie.retire.commands:decommission",
        "Short for `bookie decommission`.",
    ),
    "disk": (
        f"{_AT}.disk.commands:disk",
        "A bookie's directories: look into them, check, repair.",
    ),
    "bookieformat": (
        f"{_AT}.disk.repair.commands:bookieformat",
        "Short for `disk format`, with Java's options.",
    ),
    "upgrade": (f"{_AT}.disk.repair.commands:upgrade", "Short for `disk upgrade`."),
    "config": (
        f"{_AT}.settings.commands:config",
        "Settings files: check, explain, compare, show.",
    ),
    "profile": (f"{_AT}.settings.commands:profile", "Profiles: clusters by name."),
    "demo": (f"{_AT}.local.commands:demo", "Run a demo: write, crash, recover, read, export."),
    "local": (f"{_AT}.local.commands:local", "Run a cluster of N bookies on this machine."),
    "bench": (
        f"{_AT}.load.commands:bench",
        "Measure how fast a cluster or a disk is.",
    ),
    "shell": (
        f"{_AT}.tool.commands:shell",
        "Run commands from a prompt or a script, on one connection.",
    ),
    "compat": (
        f"{_AT}.tool.commands:compat",
        "Run a command of Java's tools, by its name and options.",
    ),
    "explain": (f"{_AT}.tool.commands:explain", "Explain an error, and what to do; or a term."),
    "debug": (
        f"{_AT}.doctor.commands:debug",
        "Collect information for a bug report.",
    ),
    "version": (
        f"{_AT}.tool.commands:version",
        "Show the version of this tool; with --all, of each bookie.",
    ),
    "completion": (
        f"{_AT}.tool.commands:completion",
        "Print the completion script for bash, zsh or fish.",
    ),
    "help": (f"{_AT}.tool.commands:help_", "Show the help of a command."),
    "options": (f"{_AT}.tool.commands:options", "Show the options that every command takes."),
}

SECTIONS: Final = {
    "Data": ("ledger", "log", "topic", "export, spark", "fence"),
    "Cluster": ("cluster", "bookie", "cookie", "top", "metaformat"),
    "Repair": ("doctor", "autorecovery", "recover", "decommission"),
    "Offline disk": ("disk", "bookieformat", "upgrade"),
    "Try out": ("demo", "local", "bench"),
    "Settings and tool": (
        *("config", "profile", "shell", "compat", "explain", "debug", "version", "completion"),
        "help, options",
    ),
}
"""The sections of the root's help, and the names of their lines."""

JOINED: Final = {
    "export, spark": "Export ledgers to Parquet; pack what Spark's workers need.",
    "help, options": "Show the help of a command; the options that all take.",
}
"""Names that share a line of the root's help."""

ALIASES: Final = {
    "bookies": "bookie",
    "cookies": "cookie",
    "ledgers": "ledger",
    "logs": "log",
    "profiles": "profile",
    "topics": "topic",
    "standalone": "local 1 --all",
}
