"""Mutations: the protocol with one rule left out, each to be caught by histories of the simulation.

A mutation that no history catches would show that the simulation, or its checker, is blind there. None of them is a
switch of the product: a mutation replaces the function that owns the rule while it is on.
"""
