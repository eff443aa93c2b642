"""An Accelerate loop with gradient accumulation. Offline, a few seconds on a CPU."""

import torch
from accelerate import Accelerator
from accelerate.utils import GradientAccumulationPlugin
from transformers import GPT2Config, GPT2LMHeadModel

import errornorm
from errornorm.integrations.accelerate import groups, num_items, prepare, step

VOCAB, LENGTH, NOISE = 32, 12, 0.1
torch.manual_seed(0)
torch.set_num_threads(1)  # the model is tiny

clean = (torch.randint(VOCAB, (2048, 1)) + torch.arange(LENGTH)) % VOCAB  # counting upwards from anywhere
noisy = torch.where(torch.rand(clean.shape) < NOISE, torch.randint(VOCAB, clean.shape), clean)
data = [{"input_ids": row, "labels": row} for row in noisy]

# The micro-batches of a step are read ahead, to count their tokens: sync_with_dataloader must be off.
accumulation = GradientAccumulationPlugin(num_steps=2, sync_with_dataloader=False)
accelerator = Accelerator(gradient_accumulation_plugin=accumulation, cpu=True)
config = GPT2Config(
    vocab_size=VOCAB, n_positions=LENGTH, n_layer=1, n_head=2, n_embd=32, bos_token_id=0, eos_token_id=0
)
model = GPT2LMHeadModel(config).train()
handle = errornorm.attach(model, errornorm.ent_fraction(NOISE, scope="running", start=50))
model, optimizer, loader = accelerator.prepare(
    model,
    torch.optim.AdamW(model.parameters(), lr=1e-2),
    torch.utils.data.DataLoader(data, batch_size=16, shuffle=True),
)
prepare(accelerator, handle)  # from now on accelerator.save_state keeps the objective's state too

for epoch in range(2):
    losses = []
    for group in groups(accelerator, loader):
        count = num_items(accelerator, handle, group)
        for batch in group:
            with accelerator.accumulate(model):
                loss = model(**batch, num_items_in_batch=count).loss
                accelerator.backward(loss)
                step(accelerator, handle, optimizer, max_grad_norm=1.0)
            losses.append(loss.item())
    accelerator.print(f"epoch {epoch}: loss {sum(losses) / len(losses):.3f}")
accelerator.print(handle.summary())
