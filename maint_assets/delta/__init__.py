"""The Delta protocol as values: names, paths, actions, features; no Spark and no store."""
