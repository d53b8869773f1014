"""The time that a step takes on a machine: simulated from what was done, or computed from shapes."""
