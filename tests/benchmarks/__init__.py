"""Measurements. They assert nothing: their figures are for people, and go into the documents."""
