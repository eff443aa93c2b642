"""Seq2SeqTrainer: encoder-decoder models get their decoder inputs built, and are scaled right under accumulation."""

import torch
from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments, T5Config, T5ForConditionalGeneration

import errornorm

torch.manual_seed(0)
source = torch.randint(3, 60, (256, 8))
target = source.flip(1)  # to reverse a sequence,
target[::5] = source[::5]  # but every fifth was left "untranslated"
data = [{"input_ids": x, "labels": y} for x, y in zip(source, target, strict=True)]

config = T5Config(vocab_size=64, d_model=32, d_kv=8, d_ff=64, num_layers=1, num_heads=4, decoder_start_token_id=0)
model = T5ForConditionalGeneration(config)
handle = errornorm.attach(model, errornorm.ent_fraction(0.1, scope="running", start=20))  # before the trainer is made

args = Seq2SeqTrainingArguments(
    output_dir="run", max_steps=60, per_device_train_batch_size=16, gradient_accumulation_steps=2, learning_rate=1e-2,
    logging_steps=20, report_to=[], save_strategy="no", disable_tqdm=True, dataloader_pin_memory=False, use_cpu=True,
)  # fmt: skip
Seq2SeqTrainer(model=model, args=args, train_dataset=data).train()
print(handle.summary())
