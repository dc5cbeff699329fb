"""Datasets of stages on executors: Parquet parts with counts and digests, shuffles, the ledger."""
