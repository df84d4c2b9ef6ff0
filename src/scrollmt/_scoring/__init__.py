"""Scores beside reference forecasts, and their errors."""
