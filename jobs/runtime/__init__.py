"""What every job stands on: commits, fingerprints, the cluster and the terminal."""
