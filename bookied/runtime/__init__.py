"""The parts of a running bookie and their life: engine, listener, registration, mode."""
