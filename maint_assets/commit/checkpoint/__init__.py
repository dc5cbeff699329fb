"""Writing checkpoints: their part files, and the ``_last_checkpoint`` hint."""
