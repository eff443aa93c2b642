"""Architectures by name: entries of transformers configurations, for models made from scratch."""

from __future__ import annotations

from typing import Any, Literal

Kind = Literal["seq2seq", "causal"]


def kind_of(task: str) -> Kind:
    return "causal" if task == "language-modeling" else "seq2seq"


def _marian(layers: int, width: int, inner: int, heads: int, dropout: float) -> dict[str, Any]:
    return {
        "model_type": "marian",
        "d_model": width,
        "init_std": width**-0.5,  # as Xavier for square layers; 0.02 is too small for small models
        "encoder_layers": layers,
        "decoder_layers": layers,
        "encoder_ffn_dim": inner,
        "decoder_ffn_dim": inner,
        "encoder_attention_heads": heads,
        "decoder_attention_heads": heads,
        "dropout": dropout,
        "attention_dropout": 0.0,
        "activation_dropout": 0.0,
        "activation_function": "relu",
        "scale_embedding": True,
        "share_encoder_decoder_embeddings": True,
        "tie_word_embeddings": True,
    }


def _gpt2(layers: int, width: int, heads: int, dropout: float) -> dict[str, Any]:
    return {
        "model_type": "gpt2",
        "n_layer": layers,
        "n_embd": width,
        "n_head": heads,
        "resid_pdrop": dropout,
        "embd_pdrop": dropout,
        "attn_pdrop": dropout,
        "tie_word_embeddings": True,
    }


PRESETS: dict[str, dict[Kind, dict[str, Any]]] = {
    "tiny": {"seq2seq": _marian(2, 128, 512, 4, 0.1), "causal": _gpt2(3, 128, 4, 0.1)},
    "small": {"seq2seq": _marian(4, 256, 1024, 4, 0.1), "causal": _gpt2(6, 384, 6, 0.1)},
    "transformer_iwslt_de_en": {"seq2seq": _marian(6, 512, 1024, 4, 0.3)},
    "gpt2-large": {"causal": _gpt2(36, 1280, 20, 0.1)},
}
