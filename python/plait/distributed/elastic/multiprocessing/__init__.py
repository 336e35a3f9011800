"""`errors` has the decorator `record`."""
