"""The vaults: the only pygit2 and the only git children."""
