"""Solvers: exact bounds of what any schedule can reach."""
