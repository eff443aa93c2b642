"""A page to look at scores."""
