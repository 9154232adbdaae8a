"""The quorum rules: plain functions of values, without I/O."""
