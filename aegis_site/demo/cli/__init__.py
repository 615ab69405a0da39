"""Verbs that the demo adds to ``manage.py aegis``."""
