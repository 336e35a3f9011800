"""Gradients: backward passes, nodes of the graph, hooks, saved values."""
