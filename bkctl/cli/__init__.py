"""The root of the command tree, global options, parameter types."""
