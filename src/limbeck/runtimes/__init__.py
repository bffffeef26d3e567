"""Exported models and what runs them: ONNX Runtime and OpenVINO, beside torch.

`manifest.read_export(folder)` reads an exported folder's manifest, `predictor.OnnxPredictor.load(folder)` opens it,
`sessions.open_export` its model without a tokenizer, and `sessions.open_file` a model file alone.
"""
