"""Index files of Interleaved and Sorted storage, one a ledger; ``rocks`` is the other kind."""
