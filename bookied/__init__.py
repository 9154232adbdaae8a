"""The bookie daemon: stores entries, answers clients and registers in the cluster."""
