"""VACUUM: paths that must stay, the listing, the plan, and its deletion."""
