"""The state of a running bookie: starting or serving, registered, writable or read-only."""
