"""The native ops, and the same functions in stock TensorFlow where exported models need them."""
