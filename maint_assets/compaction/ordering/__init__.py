"""Z-order and clustering: the columns to order by, the files to order together, the curve."""
