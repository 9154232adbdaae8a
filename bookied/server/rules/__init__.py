"""The bookie's rules for adds, reads, fences and deletions."""
