"""Recipes as package data: one YAML file a method."""
