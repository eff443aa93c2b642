"""Hugging Face Trainer: robust, with telemetry and exact resume."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

import errornorm
from errornorm.integrations.trainer import robust

torch.manual_seed(0)
tokens = torch.randint(3, 60, (256, 1)) + torch.arange(16)  # counting up, and
wrong = torch.rand(tokens.shape) < 0.05  # now and then a wrong number
tokens[wrong] = torch.randint(3, 76, (int(wrong.sum()),))
data = [{"input_ids": row, "labels": row} for row in tokens]

model = GPT2LMHeadModel(
    GPT2Config(n_layer=2, n_head=4, n_embd=64, n_positions=32, vocab_size=80, bos_token_id=0, eos_token_id=0)
)
args = TrainingArguments(
    output_dir="run", max_steps=60, per_device_train_batch_size=32, learning_rate=3e-3, logging_steps=20,
    report_to=[], save_strategy="no", disable_tqdm=True, dataloader_pin_memory=False, use_cpu=True,
)  # fmt: skip
trainer = Trainer(model=model, args=args, train_dataset=data)

handle = robust(trainer, errornorm.ent_fraction(0.05, start=30))
trainer.train()
print(handle.summary())
