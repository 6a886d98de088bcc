"""Sections of the configuration that are long enough for a file of their own; `jobs.config` puts them together."""
