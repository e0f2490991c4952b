"""What is wrong with a program, and the running of one that is to be checked."""
