"""Delta Lake table maintenance on PySpark as a chain of Dagster assets."""
