"""Labelling: a teacher's outputs for any number of rows, written as a store of outputs."""
