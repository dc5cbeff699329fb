"""Reading and writing of bytes: local file systems now, object stores by the same doors."""
