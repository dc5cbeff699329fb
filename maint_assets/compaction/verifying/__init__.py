"""Whether a new file holds the rows of its inputs."""
