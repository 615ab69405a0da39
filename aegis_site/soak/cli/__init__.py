"""Verbs that the soak adds to ``manage.py aegis``."""
