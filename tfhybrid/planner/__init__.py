"""Cost model: the seconds that tables add to a step, from measured constants."""
