"""A loop of your own: attach the objective, then one call per optimizer step. Offline, a few seconds on a CPU."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel

import errornorm
from errornorm.integrations.loop import train_step

VOCAB, LENGTH, NOISE = 32, 12, 0.1
torch.manual_seed(0)
torch.set_num_threads(1)  # the model is tiny


def draw(rows):
    """Counting upwards from anywhere, with a tenth of the tokens replaced at random."""
    clean = (torch.randint(VOCAB, (rows, 1)) + torch.arange(LENGTH)) % VOCAB
    noisy = torch.where(torch.rand(rows, LENGTH) < NOISE, torch.randint(VOCAB, (rows, LENGTH)), clean)
    return {"input_ids": noisy, "labels": noisy}


config = GPT2Config(
    vocab_size=VOCAB, n_positions=LENGTH, n_layer=1, n_head=2, n_embd=32, bos_token_id=0, eos_token_id=0
)
model = GPT2LMHeadModel(config).train()
handle = errornorm.attach(model, errornorm.ent_fraction(NOISE, scope="running", start=50))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

for step in range(1, 151):
    micro_batches = [draw(16), draw(16)]  # their split does not matter
    loss = train_step(model, handle, optimizer, micro_batches, max_grad_norm=1.0)
    if step % 50 == 0:
        print(f"step {step}: loss {loss:.3f}")
print(handle.summary())
# A checkpoint of yours also needs handle.state_dict().
