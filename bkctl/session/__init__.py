"""What a command gets: settings, client, metadata, directories, confirmation."""
