"""Mixtures: which group of documents gives which sequence of a training run.

All but `columns` need NumPy and the settings, neither Dask nor Numba, so that a training script plans as the jobs do.

=========================  =================================================================
`jobs.mixture.allotment`   how many sequences each group gives; what can be met, and what is closest
`jobs.mixture.columns`     which columns of the ledger can make groups
`jobs.mixture.schedule`    which group gives the n-th sequence, and how many it gave before
`jobs.mixture.epochs`      in which order a group's sequences are drawn, epoch after epoch
`jobs.mixture.groups`      the shards of the groups, as files say what they are
`jobs.mixture.sequences`   the sequences of a stage, read from the shards of the groups
=========================  =================================================================
"""
