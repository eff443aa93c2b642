"""Scores of every token, word and sentence of a corpus, in a table on disk."""
