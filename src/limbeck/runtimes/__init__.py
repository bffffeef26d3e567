"""Exported models and their runtimes: ONNX Runtime and OpenVINO, in addition to torch.

`manifest.read_export(folder)` reads an exported folder's manifest, `predictor.OnnxPredictor.load(folder)` opens it,
`sessions.open_export` its model without a tokenizer, and `sessions.open_file` a model file alone.
"""
