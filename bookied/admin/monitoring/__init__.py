"""The metrics of a bookie, under Java's names and bookied's own."""
