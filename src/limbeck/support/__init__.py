"""What everything else stands on: errors, registries, settings, files, the machine. Nothing of distillation."""
