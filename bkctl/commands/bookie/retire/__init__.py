"""Commands that retire a bookie: recover, decommission."""
