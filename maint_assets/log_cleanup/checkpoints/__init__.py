"""Checkpoints as the anchor of a log: opened, compared with the commits, with their sidecars."""
