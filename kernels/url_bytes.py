"""Bytes of URLs: classes of RFC 3986, lower case, digits of percent-encoding; compiled into what uses them."""

import numpy as np

from kernels.accelerate import inlined

DOT, PLUS, MINUS, SPACE = b".+- "


@inlined
def trimmed(data, start, end):
    """Where a URL begins and ends without the white space around it."""
    while start < end and data[start] <= SPACE:
        start += 1
    while start < end and data[end - 1] <= SPACE:
        end -= 1
    return start, end


@inlined
def is_letter(value):
    """An ASCII letter."""
    return 97 <= value | 32 <= 122


@inlined
def is_digit(value):
    """An ASCII digit."""
    return 48 <= value <= 57


@inlined
def is_in_scheme(value):
    """What a scheme is made of (section 3.1), behind its first letter."""
    return is_letter(value) or is_digit(value) or value in (PLUS, MINUS, DOT)


@inlined
def lower(value):
    """An ASCII capital letter's small one; any other byte as it is."""
    return value + np.uint8(32) if 65 <= value <= 90 else value


@inlined
def nibble(value):
    """Value of a hexadecimal digit; -1 for another byte."""
    if is_digit(value):
        return np.int64(value) - 48
    lower = np.int64(value) | 32
    return lower - 87 if 97 <= lower <= 102 else np.int64(-1)
