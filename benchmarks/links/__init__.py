"""Point-to-point links: latency and bandwidth of every ordered pair of ranks."""
