"""Collective communication: bus bandwidth, latency and verified results."""
