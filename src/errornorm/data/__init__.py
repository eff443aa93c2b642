"""Text in files: read without losing a line, corrupted on purpose, written back."""
