"""Labelling: what a teacher of any kind says of any number of rows, written as a store of outputs."""
