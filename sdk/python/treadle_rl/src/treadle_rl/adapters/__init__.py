"""Adapters of training frameworks. Each module imports its framework when it is imported."""
