"""One HTTP connection and what all of them may take."""
