"""A bookie: stores entries, answers clients, keeps its place in the cluster."""
