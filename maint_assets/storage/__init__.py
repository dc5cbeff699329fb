"""Read and write bytes on local file systems and S3, through the same functions."""
