"""Checkpoints: how long until the state is durable, and is what comes back what was saved."""
