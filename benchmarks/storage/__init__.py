"""Storage as the kernel shows it: which file system, what is in the page cache, what came from the device."""
