"""The commands about the tool itself: version, help, explain, compat, completion, shell."""
