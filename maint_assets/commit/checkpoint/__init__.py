"""Checkpoints: their shape, their parts, and the hint to the last one."""
