"""Data files in: whether Arrow may read them, which rows live, in which types."""
