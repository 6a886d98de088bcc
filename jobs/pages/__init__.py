"""Pages: the bytes of a record to text, one page at a time, in processes that can be ended.

`http` undoes how a page travelled, `charset` how it was written, `engines` finds the main text in it, and `page`
decides which of them apply. That runs in child processes (`child`), which `isolation` starts, feeds and replaces.

Nothing here imports Arrow, NumPy or the rest of the project, so that a child starts fast and stays small.
"""
