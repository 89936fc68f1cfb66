"""Reads: how fast training gets its tokens from storage, in order and at random."""
