"""What models there are, and by which routes they are reached."""
