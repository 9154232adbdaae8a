"""Data integrity (BP-46): a bookie that lost data says so, and fetches it back from its peers."""
