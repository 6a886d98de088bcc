"""Near-duplicates at any size: which band keys are worth shuffling, and connected components."""
