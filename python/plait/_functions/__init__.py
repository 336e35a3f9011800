"""Functions whose overloads a row of the registry cannot say, by concept, over the generated ones in `plait._ops`."""
