"""One folder for each group of commands."""
