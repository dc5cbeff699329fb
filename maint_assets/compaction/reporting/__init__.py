"""Metrics of a rewrite: delta-spark's OPTIMIZE metrics, and data skipping before and after."""
