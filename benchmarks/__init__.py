"""Side-by-side measurements: ours and the peers in one process, interleaved."""
