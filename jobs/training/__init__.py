"""Training models of quality: labelled documents in, cross-validated figures out."""
