"""Duplicates: of a URL, of a text, and near-duplicates, each step among the documents that the ones before kept.

`keep` says which document of several is kept, `scope` among which documents they are looked for, `dropped` holds what
a step dropped, `against` brings in the documents of earlier runs, and `proof` holds them against the ledger; `equal`
finds equal hashes for `urls` and `exact`. For `near`, `candidates` finds who share a band, `repeats` says which band
keys are worth shuffling, `verification` how similar candidates are, and `components` joins them, at any size.
"""
