"""The native ops, and stock TensorFlow versions of them for exported models."""
