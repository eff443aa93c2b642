"""Tiny models of many architectures, from their configurations."""

import torch
import transformers as hf

VOCAB = 97
CAUSAL = {
    "gpt2": (hf.GPT2Config, {"n_layer": 1, "n_head": 2, "n_embd": 16, "n_positions": 32}),
    "gpt_neox": (hf.GPTNeoXConfig, {}),
    "gptj": (hf.GPTJConfig, {"n_layer": 1, "n_head": 2, "n_embd": 16, "n_positions": 32, "rotary_dim": 4}),
    "llama": (hf.LlamaConfig, {}),
    "mistral": (hf.MistralConfig, {}),
    "qwen2": (hf.Qwen2Config, {}),
    "qwen3": (hf.Qwen3Config, {"head_dim": 8}),
    "gemma": (hf.GemmaConfig, {"head_dim": 8}),
    "gemma2": (hf.Gemma2Config, {"head_dim": 8, "final_logit_softcapping": 2.0}),
    "granite": (hf.GraniteConfig, {"logits_scaling": 3.0}),
    "cohere": (hf.CohereConfig, {"logit_scale": 0.25}),
    "phi": (hf.PhiConfig, {}),
    "phi3": (hf.Phi3Config, {"pad_token_id": 0}),
    "olmo2": (hf.Olmo2Config, {}),
    "starcoder2": (hf.Starcoder2Config, {}),
    "stablelm": (hf.StableLmConfig, {}),
    "opt": (hf.OPTConfig, {"ffn_dim": 32, "word_embed_proj_dim": 16}),
    "bloom": (hf.BloomConfig, {"n_layer": 1, "n_head": 2}),
    "falcon_h1": (
        hf.FalconH1Config,
        {"lm_head_multiplier": 0.5, "mamba_d_ssm": 16, "mamba_n_heads": 2, "mamba_d_head": 8, "mamba_d_state": 8,
         "mamba_n_groups": 1},
    ),
    "mixtral": (hf.MixtralConfig, {"num_local_experts": 2, "num_experts_per_tok": 1, "output_router_logits": True}),
}  # fmt: skip
SEQ2SEQ = {
    "bart": (hf.BartConfig, {}),
    "mbart": (hf.MBartConfig, {}),
    "marian": (hf.MarianConfig, {"decoder_start_token_id": 0, "decoder_vocab_size": VOCAB}),
    "m2m100": (hf.M2M100Config, {}),
    "pegasus": (hf.PegasusConfig, {}),
    "blenderbot": (hf.BlenderbotConfig, {}),
    "t5": (hf.T5Config, {}),
    "mt5": (hf.MT5Config, {}),
    "umt5": (hf.UMT5Config, {}),
    "longt5": (hf.LongT5Config, {}),
}
_SHAPE = {
    "vocab_size": VOCAB, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
    "num_key_value_heads": 2, "max_position_embeddings": 32, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
    "attention_dropout": 0.0, "hidden_dropout": 0.0, "attention_probs_dropout_prob": 0.0, "embd_pdrop": 0.0,
    "resid_pdrop": 0.0, "attn_pdrop": 0.0, "dropout": 0.0, "activation_dropout": 0.0, "residual_dropout": 0.0,
}  # fmt: skip
_T5 = {
    "vocab_size": VOCAB, "d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2, "dropout_rate": 0.0,
    "pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0,
}  # fmt: skip
_BART = {
    "vocab_size": VOCAB, "d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "max_position_embeddings": 32,
    "dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2, "decoder_start_token_id": 2, "forced_eos_token_id": 2,
}  # fmt: skip


def build(name: str, seed: int = 0, **changes):
    """A tiny model with weights large enough for logits that differ; T5's are so from the start."""
    kind, own = {**CAUSAL, **SEQ2SEQ}[name]
    base = _SHAPE if name in CAUSAL else _T5 if "t5" in name else _BART
    torch.manual_seed(seed)
    config = kind(**{**base, **own, **changes})
    auto = hf.AutoModelForCausalLM if name in CAUSAL else hf.AutoModelForSeq2SeqLM
    model = auto.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1 and parameter.requires_grad:
                parameter.mul_(1 if "t5" in name else 3)
    if getattr(model, "final_logits_bias", None) is not None:
        model.final_logits_bias.normal_()
    return model


def batch(name: str, rows: int = 3, length: int = 9, seed: int = 1):
    """Inputs and labels, some of them ignored."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(3, VOCAB, (rows, length), generator=generator)
    if name in CAUSAL:
        labels = tokens.clone()
        labels[0, :3] = -100
        labels[-1, -2:] = -100
        return {"input_ids": tokens, "labels": labels}
    labels = torch.randint(3, VOCAB, (rows, length - 2), generator=generator)
    labels[-1, -2:] = -100
    return {"input_ids": tokens, "labels": labels}


def step(model, inputs):
    """The loss of a batch, and its gradients."""
    model.zero_grad(set_to_none=True)
    loss = model(**inputs).loss
    loss.backward()
    return loss.detach(), gradients(model)


def gradients(model):
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
