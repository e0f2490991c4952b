"""Recordings played again: in the recorded streams and order, or in a better one."""
