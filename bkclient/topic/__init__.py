"""Pulsar topics, read from their ledgers without a broker."""
