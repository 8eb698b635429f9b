"""The sync unit: applies updates to target models, and publishes their weights."""
