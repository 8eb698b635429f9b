"""What files of samples look like: each format cuts a file into units and reads one of them."""
