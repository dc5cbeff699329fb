"""Complete file actions with all fields, for checkpoints and rewrites."""
