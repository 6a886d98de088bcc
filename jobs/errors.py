"""What a user can cause, said in one sentence."""


class UserError(Exception):
    """A mistake in a setting, an argument or an input file; printed without a traceback."""
