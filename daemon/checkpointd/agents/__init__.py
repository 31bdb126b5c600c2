"""Adapters: one module an agent, one shared tail; log bytes in, events out."""
