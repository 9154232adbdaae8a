"""The target of an export: the files, the record of each run, and the commit of a run."""
