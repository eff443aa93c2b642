"""A LightningModule with an objective: attach, and the callback. Offline, a few seconds on a CPU."""

import lightning
import torch
from torch.utils.data import DataLoader
from transformers import GPT2Config, GPT2LMHeadModel

import errornorm
from errornorm.integrations.lightning import RobustCallback

VOCAB, LENGTH, NOISE = 32, 12, 0.1
lightning.seed_everything(0, verbose=False)
torch.set_num_threads(1)  # the model is tiny

clean = (torch.randint(VOCAB, (2048, 1)) + torch.arange(LENGTH)) % VOCAB  # counting upwards from anywhere
noisy = torch.where(torch.rand(clean.shape) < NOISE, torch.randint(VOCAB, clean.shape), clean)
data = [{"input_ids": row, "labels": row} for row in noisy]


class Language(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        config = GPT2Config(
            vocab_size=VOCAB, n_positions=LENGTH, n_layer=1, n_head=2, n_embd=32, bos_token_id=0, eos_token_id=0
        )
        self.model = GPT2LMHeadModel(config).train()

    def training_step(self, batch):
        return self.model(**batch).loss  # the objective

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


module = Language()
handle = errornorm.attach(module.model, errornorm.ent_fraction(NOISE, scope="running", start=50))
trainer = lightning.Trainer(
    max_epochs=2,
    callbacks=[RobustCallback(handle)],
    gradient_clip_val=1.0,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(module, DataLoader(data, batch_size=16, shuffle=True))

for name, value in trainer.callback_metrics.items():
    print(f"{name} {value:.3f}")
print(handle.summary())
