"""What to do with scores: compare sources, estimate noise, prune, and measure against labels."""
