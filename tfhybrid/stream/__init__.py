"""Online training: queues of samples, who trains which rows, and the weights that come of it."""
