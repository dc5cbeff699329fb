"""VACUUM: what must stay, what is there, what may go, and its deletion."""
