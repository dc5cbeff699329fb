"""What tests build tables, logs and runs with."""
