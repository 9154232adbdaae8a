"""The fault model on real processes: bookies and clients of both kinds, and a real ZooKeeper."""
