"""Commands about load: top, slow, plot, bench."""
