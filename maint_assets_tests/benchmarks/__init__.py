"""Benchmarks of ours and the peers, interleaved, in one run."""
