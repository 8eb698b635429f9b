"""File formats of samples. A format cuts a file into units and reads them."""
