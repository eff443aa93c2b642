"""From a noisy text file to a robust model: the `train` verb. Needs the extra `train`."""
