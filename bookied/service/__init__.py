"""The services of a process: a bookie or autorecovery, with their start and stop."""
