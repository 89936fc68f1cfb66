"""Matrix products: the rate a device computes at, and whether it computes right."""
