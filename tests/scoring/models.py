"""Small models in folders, with their tokenizers, and what they say about a text in float64."""

import torch

from tests import tiny


def save(folder, name, **options):
    """A tiny model of a type, where `errornorm score` can find it."""
    model = tiny.model(name, **options)
    model.save_pretrained(folder)
    tiny.tokenizer("causal" if name in tiny.CAUSAL else "seq2seq").save_pretrained(folder)
    return folder


def reference(model, tokenizer, context, text):
    """Statistics of every scored token by the textbook, one text at a time, without padding, in float64."""
    model = model.double().eval()
    with torch.no_grad():
        if model.config.is_encoder_decoder:
            source = torch.tensor([tokenizer(context)["input_ids"]])
            targets = tokenizer(text_target=text)["input_ids"]
            start = model.config.decoder_start_token_id
            before = torch.tensor([[start, *targets[:-1]]])
            logits = model(input_ids=source, decoder_input_ids=before).logits[0]
        else:
            whole = tokenizer(context + text, add_special_tokens=False, return_offsets_mapping=True)
            first = next(i for i, (_, end) in enumerate(whole["offset_mapping"]) if end > len(context))
            tokens = whole["input_ids"]
            begin = tokenizer.bos_token_id if tokenizer.bos_token_id is not None else tokenizer.eos_token_id
            logits = model(input_ids=torch.tensor([[begin, *tokens[:-1]]])).logits[0][first:]
            targets = tokens[first:]
    p = logits.softmax(-1)
    targets = torch.tensor(targets)
    truth = torch.nn.functional.one_hot(targets, logits.shape[-1])
    own = logits.gather(1, targets.unsqueeze(1)).squeeze(1)
    others = logits.masked_fill(truth.bool(), -torch.inf).amax(1)
    log_p = logits.log_softmax(-1)
    return {
        "nll": -log_p.gather(1, targets.unsqueeze(1)).squeeze(1),
        "error_norm": (p - truth).norm(dim=1),
        "entropy": -(p * log_p).sum(1),
        "p_target": p.gather(1, targets.unsqueeze(1)).squeeze(1),
        "margin": own - others,
    }
