"""Packed token files: what is read is what was packed, every layout reads the same, and a wrong file is refused."""

import json

import pytest
import torch

from reference_model.job import Job
from reference_model.layout import Layout
from reference_model.packed import HEADER_BYTES, PackedTokens, main, pack
from reference_model.shape import SHAPES
from reference_model.trainer import tokens_of


@pytest.fixture
def counting(tmp_path):
    """A file whose tokens are 0, 1, 2 ... 99, of a vocabulary of 2048."""
    path = tmp_path / "counting.tokens"
    pack(path, [torch.arange(60), torch.arange(60, 100)], vocab=2048)
    return path


def opened(path, **fields):
    return PackedTokens.open(str(path), **{"vocab": 2048, "sequence": 8, "batch": 4, **fields})


def test_rows_are_stretches_of_the_file_and_targets_are_one_further(counting):
    data = opened(counting)
    tokens, targets = data.rows(step=1, rows=range(1, 3))
    assert tokens.tolist() == [list(range(40, 48)), list(range(48, 56))]
    assert targets.tolist() == [list(range(41, 49)), list(range(49, 57))]
    data.close()


def test_ranks_together_read_what_one_reads(counting):
    whole, part = opened(counting), opened(counting)
    for step in range(5):
        all_rows = whole.rows(step=step, rows=range(4))
        assert torch.equal(part.rows(step=step, rows=range(2, 4))[0], all_rows[0][2:])
    whole.close()
    part.close()


def test_past_its_end_the_file_is_read_again(counting):
    data = opened(counting)
    assert data.stretches == 12  # 99 tokens have another behind them
    assert torch.equal(data.rows(step=3, rows=range(4))[0], data.rows(step=0, rows=range(4))[0])
    data.close()


def test_the_next_step_is_read_ahead(counting):
    data = opened(counting)
    data.rows(step=0, rows=range(4))
    step, _, read = data._next
    assert step == 1
    assert read.result().shape == (4, 9)
    data.close()


def test_a_large_vocabulary_takes_four_bytes_and_a_small_one_two(tmp_path, counting):
    large = tmp_path / "large.tokens"
    pack(large, [torch.tensor([128_255] * 50)], vocab=128_256)
    assert large.stat().st_size == HEADER_BYTES + 200
    assert counting.stat().st_size == HEADER_BYTES + 200  # a hundred of them
    data = opened(large, vocab=128_256)
    assert data.rows(step=0, rows=range(4))[1].unique().tolist() == [128_255]
    data.close()


def test_a_job_takes_its_tokens_from_the_file(counting):
    shape, layout = SHAPES["tiny"], Layout()
    job = Job(shape=shape, layout=layout, sequence=8, micro_batch=2, micro_batches=2, data=str(counting))
    data = tokens_of(job)
    assert data.rows(step=0, rows=range(1))[0].tolist() == [list(range(8))]
    data.close()


def spoiled(path, **header):
    """The file with other words in its header."""
    content = path.read_bytes()
    words = {**json.loads(content[:HEADER_BYTES]), **header}
    path.write_bytes(json.dumps(words).encode().ljust(HEADER_BYTES) + content[HEADER_BYTES:])
    return path


class TestRefused:
    @pytest.mark.parametrize(
        ("header", "reason"),
        [
            ({"vocab": 32_000}, "vocabulary of 32000 and the model's is 2048"),
            ({"version": 2}, "no packed token file of version 1"),
            ({"dtype": "float32"}, "no packed token file"),
            ({"tokens": 200}, "says 200 tokens and holds 100"),
            ({"tokens": "many"}, "whole numbers"),
            ({"vocab": 0}, "whole numbers"),
        ],
    )
    def test_a_header_that_does_not_fit(self, counting, header, reason):
        with pytest.raises(ValueError, match=reason):
            opened(spoiled(counting, **header))

    def test_a_token_beyond_the_vocabulary_that_it_names(self, counting):
        """A file of another tokenizer with a forged header."""
        with pytest.raises(ValueError, match=r"holds token \d+ near step 0, and its vocabulary is 20"):
            opened(spoiled(counting, vocab=20), vocab=20).rows(step=0, rows=range(4))

    def test_a_file_too_short_for_one_step(self, counting):
        with pytest.raises(ValueError, match="use a longer file"):
            opened(counting, batch=100)

    def test_a_missing_file_and_one_of_another_kind(self, tmp_path):
        with pytest.raises(ValueError, match="No such file"):
            opened(tmp_path / "absent")
        other = tmp_path / "other"
        other.write_bytes(b"\x00\xff" * 5000)
        with pytest.raises(ValueError, match="is no packed token file"):
            opened(other)

    def test_a_file_that_is_cut_while_it_is_read(self, counting):
        data = opened(counting)
        counting.write_bytes(counting.read_bytes()[: HEADER_BYTES + 20])
        with pytest.raises(ValueError, match="ends early"):
            data.rows(step=0, rows=range(4))
        data.close()

    def test_tokens_that_do_not_fit_are_not_packed(self, tmp_path):
        with pytest.raises(ValueError, match="outside a vocabulary"):
            pack(tmp_path / "bad", [torch.tensor([5])], vocab=5)
        assert not (tmp_path / "bad").exists()


class TestCommand:
    def test_raw_tokens_are_packed(self, tmp_path, capsys):
        (tmp_path / "raw").write_bytes(bytes(range(100)))
        target = tmp_path / "out.tokens"
        assert main([str(target), "--vocab", "65536", "--raw", str(tmp_path / "raw"), "--dtype", "uint16"]) == 0
        assert "50 tokens" in capsys.readouterr().out
        data = opened(target, vocab=65_536)
        assert data.rows(step=0, rows=range(1))[0][0, 0] == 256  # bytes 0 and 1, little-endian
        data.close()

    def test_made_up_tokens_are_packed(self, tmp_path):
        assert main([str(tmp_path / "out"), "--vocab", "2048", "--count", "1000"]) == 0
        opened(tmp_path / "out").close()

    def test_half_a_token_is_refused(self, tmp_path, capsys):
        (tmp_path / "raw").write_bytes(b"123")
        assert main([str(tmp_path / "out"), "--vocab", "65536", "--raw", str(tmp_path / "raw")]) == 4
        assert "ends within a token" in capsys.readouterr().err
