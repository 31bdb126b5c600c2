"""Paths as records spell them. Defined with the contract: both ends of the socket must spell alike."""

from ckpt.contract.paths import quote, unquote

__all__ = ["quote", "unquote"]
