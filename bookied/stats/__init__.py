"""What a bookie counts, and how monitoring reads it: names, labels and types as Java's."""
