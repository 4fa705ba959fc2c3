"""Causal attention inside documents, as a pair: tokens -> mask, and (q, k, v, mask) -> output; heads before positions."""
import torch


def document_numbers(tokens):
    """Documents end with id 0; attention stays inside a document."""
    ends = (tokens == 0).long().cumsum(1)
    return torch.cat((torch.zeros_like(ends[:, :1]), ends[:, :-1]), 1)


def causal(length, device=None):
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


def masked_attend(q, k, v, mask):
    """Plain softmax; mask is bool [batch][query][key]."""
    group = q.shape[1] // k.shape[1]
    k, v = (y.repeat_interleave(group, 1) for y in (k, v))
    scores = (q @ k.transpose(-1, -2)).float() * q.shape[-1] ** -0.5
    return scores.masked_fill(~mask[:, None], -1e30).softmax(-1).to(v.dtype) @ v


def masked():
    """Runs anywhere, slowly."""

    def mask(tokens):
        number = document_numbers(tokens)
        return (number[:, :, None] == number[:, None, :]) & causal(tokens.shape[1], tokens.device)

    return mask, masked_attend


def flex():
    """For a CUDA GPU and PyTorch 2.5 or newer."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    make = torch.compile(create_block_mask, dynamic=False)

    def mask(tokens):
        number = document_numbers(tokens)

        def visible(b, h, q, k):
            return (q >= k) & (number[b, q] == number[b, k])

        return make(visible, tokens.shape[0], None, tokens.shape[1], tokens.shape[1], device=tokens.device)

    def attend(q, k, v, mask):
        return flex_attention(q, k, v, block_mask=mask, enable_gqa=q.shape[1] != k.shape[1])

    return mask, attend
