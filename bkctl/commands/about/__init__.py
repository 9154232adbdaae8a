"""Commands about the program: version, explain, compat, completion, demo, shell."""
