"""The metrics of a bookie: names, labels and types as Java's."""
