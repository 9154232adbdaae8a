"""Every row of docs/performance.md, ours and Java's, in one run and one table."""
