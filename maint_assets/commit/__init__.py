"""The write path of the Delta log: commits and checkpoints."""
