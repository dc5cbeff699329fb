"""Complete file actions, for readers that need more than paths."""
