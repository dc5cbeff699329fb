"""What moves the rows: Arrow, sorted runs of it, or Spark."""
