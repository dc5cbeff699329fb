"""Rows of stages on executors: written, counted, digested, divided and recorded."""
