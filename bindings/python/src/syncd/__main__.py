"""`python -m syncd [ARGUMENT...]` becomes the daemon."""

from ._programs import syncd

syncd()
