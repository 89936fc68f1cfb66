"""Training: steps of the reference model, first proven correct, then timed."""
