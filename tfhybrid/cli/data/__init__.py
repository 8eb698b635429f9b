"""`tfhybrid data`, and the formats that options describe."""
