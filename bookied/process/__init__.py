"""The process: command line, logging, systemd, watchdog."""
