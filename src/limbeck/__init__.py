"""Limbeck: distil a large fine-tuned Hugging Face transformer into a small, fast one."""
