"""The commands about load: top, slow, plot, bench."""
