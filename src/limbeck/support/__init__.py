"""Basics for all packages: errors, registries, settings, files, the machine. They know nothing of distillation."""
