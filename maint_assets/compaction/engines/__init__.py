"""The engines that rewrite bins: Arrow, Arrow with sorted runs, and Spark."""
