"""Who we are, and how that is proven: the settings, and Java's files with names and passwords."""
