"""HTTP connections and their limits."""
