"""Where an export writes: the files, the record of each run, and how a run is committed."""
