"""The same core without a network: simulated worlds, their faults, and exhaustive search."""
