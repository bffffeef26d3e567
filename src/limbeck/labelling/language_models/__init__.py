"""Language models that label: a causal model on this machine, or one behind an OpenAI-compatible endpoint.

`prompt` defines the prompt, `causal` and `endpoint` run it; the latter needs the client of the extra `endpoint`.
"""
