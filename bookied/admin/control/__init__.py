"""The operations of an operator on one bookie: its state, disks, garbage and cluster."""
