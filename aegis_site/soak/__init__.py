"""Soak: real processes, real faults, an independent ledger, and a verdict on every promise."""
