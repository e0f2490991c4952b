"""What is wrong with a program, and what mends it."""
