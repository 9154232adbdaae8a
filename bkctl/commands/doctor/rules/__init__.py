"""The doctor's rules: what each thing seen means, how bad it is, and what repairs it."""
