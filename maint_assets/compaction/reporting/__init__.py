"""The outcome of a rewrite, in Delta's metrics and in what readers skip."""
