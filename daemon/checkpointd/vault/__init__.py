"""The vaults, and the only git children."""
