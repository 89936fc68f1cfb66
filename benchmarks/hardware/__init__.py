"""Links without a communication library on top: GPUs by plain stores, and what nvbandwidth and perftest measure."""
