"""The calls of the interface, by what they are about; the rooms of the interface gather them."""
