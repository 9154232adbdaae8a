"""An interactive shell over a click tree and its context."""
