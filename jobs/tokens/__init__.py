"""Tokenizers: training one, encoding documents with it, and holding the fast encoder to the reference one."""
