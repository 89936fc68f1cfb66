"""Memory: the rate a device copies its own memory at, and whether the copy is right."""
