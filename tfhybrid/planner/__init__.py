"""The cost model: what tables add to a step, from measured constants."""
