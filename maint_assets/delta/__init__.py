"""The Delta protocol as plain values: names, paths, actions, features. No Spark, no storage."""
