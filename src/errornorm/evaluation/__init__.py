"""How good an output is: scores of texts, finished runs, and whether a difference is more than chance."""
