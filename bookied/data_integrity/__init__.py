"""Data integrity (BP-46): a bookie detects lost data and copies it from other bookies."""
