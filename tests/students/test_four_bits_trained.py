"""Embedding tables that are trained in 4 bits: as ONNX Runtime rounds them, and with gradients as if in float."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from onnxruntime.quantization.matmul_nbits_quantizer import DefaultWeightOnlyQuantizer
from torch import nn

from limbeck.students.four_bits import BLOCK, in_four_bits, rounded, trained_in_four_bits


def by_onnx_runtime(rows: torch.Tensor) -> torch.Tensor:
    """What its own quantizer makes of a table, each value unpacked by hand, with scales of half precision."""
    quantize = DefaultWeightOnlyQuantizer.quantize_ndarray
    with np.errstate(invalid="ignore"):  # it divides by the scale of a row of zeros
        packed, scales, zeros = quantize(rows.numpy(), 1, BLOCK, False)
    assert zeros is not None
    steps = [half for byte in packed.tolist() for half in (byte & 15, byte >> 4)]
    offsets = [half for byte in zeros.tolist() for half in (byte & 15, byte >> 4)]
    height, width = rows.shape
    blocks = scales.shape[1]
    found = torch.empty_like(rows)
    for row in range(height):
        for column in range(width):
            block = column // BLOCK
            step = steps[row * width + column] - offsets[row * blocks + block]
            found[row, column] = step * float(np.float16(scales[row, block]))
    return found


@pytest.mark.parametrize("width", [20, 32, 48, 384])
def test_a_rounded_table_stays_as_it_is_in_the_file_of_onnx_runtime(width):
    rows = torch.randn(200, width, generator=torch.Generator().manual_seed(width))
    rows[1], rows[2], rows[3] = 0.0, rows[2].abs() + 1, -rows[3].abs()
    rows[4] *= 1e-6  # its scales are too small for eleven bits of half precision
    found = rounded(rows)
    kept = [row for row in range(200) if row != 4]
    assert torch.equal(by_onnx_runtime(found)[kept], found[kept])
    assert torch.equal(rounded(found)[kept], found[kept])
    torch.testing.assert_close(by_onnx_runtime(found)[4], found[4], rtol=0, atol=15 * 2.0**-25)
    assert found[1].abs().max() == 0
    assert len({*found[0, :BLOCK].tolist()}) <= 16 < len({*rows[0, :BLOCK].tolist()}) + 1
    # And it is as near to the values as what it makes of them by itself.
    errors = [(one - rows).abs().mean() for one in (found, by_onnx_runtime(rows))]
    assert errors[0] < 1.005 * errors[1]


def test_values_behind_the_rounded_ones_learn_and_the_rounded_stay():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(9, 32), nn.Linear(32, 2))
    table, ids = model[0], torch.tensor([[1, 4]])
    before = table.weight.detach().clone()
    with trained_in_four_bits(model):
        looked_up = table(ids)
        assert torch.equal(looked_up, rounded(before[ids]))
        assert not torch.allclose(looked_up, before[ids], atol=1e-3)
        (3 * looked_up[0, 0]).sum().backward()
        assert torch.equal(table.weight.grad[1], torch.full((32,), 3.0))
        assert torch.equal(table.weight, before)
    torch.testing.assert_close(table.weight.detach(), rounded(before))
    assert in_four_bits(model)
    table.weight.data[3, 7] *= 1.001
    assert not in_four_bits(model)
    assert torch.equal(table(ids), table.weight[ids])


def test_an_error_leaves_the_values_as_they_are():
    model = nn.Embedding(9, 32)
    before = model.weight.detach().clone()
    with pytest.raises(KeyboardInterrupt), trained_in_four_bits(model):
        raise KeyboardInterrupt
    assert torch.equal(model.weight, before)
    assert torch.equal(model(torch.tensor([3])), before[[3]])
