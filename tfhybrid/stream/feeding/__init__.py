"""Sources of a stream's rows, files and databases, whose rows are each put once."""
