"""The commands: what was asked for in, a call or two, the answer to the terminal."""
