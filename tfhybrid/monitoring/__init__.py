"""The metrics of a job, and reports on its stores, for programs that show them."""
