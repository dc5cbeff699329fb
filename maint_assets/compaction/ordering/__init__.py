"""By which columns rows are ordered, and where a row goes."""
