"""The doctor's rules: from the survey of a cluster to findings with severity and repair."""
