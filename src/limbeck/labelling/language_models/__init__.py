"""Language models that label: a causal model on this machine, or one behind an OpenAI-compatible endpoint.

`prompt` says what is asked, `causal` and `endpoint` ask it; the latter needs the client of the extra `endpoint`.
"""
