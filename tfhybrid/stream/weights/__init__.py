"""The weights of a target model as they travel and lie on disk."""
