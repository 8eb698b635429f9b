"""The data provider: puts samples into queues, and leases them to trainers."""
