"""The process of a bookie: command line, limits, signals, logging, systemd and watchdog."""
