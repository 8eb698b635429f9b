"""A trainer of a stream: leases in, deltas or gradients out."""
