"""The domain: records and decisions. Pure: no input or output, no clock."""
