"""TRL's SFTTrainer with an objective. Offline, a few seconds on a CPU."""

import tempfile

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import SFTConfig

import errornorm
from errornorm.integrations.trl import SFTTrainer

WORDS, LENGTH, NOISE = 28, 12, 0.1
torch.manual_seed(0)
torch.set_num_threads(1)  # the model is tiny

clean = (torch.randint(WORDS, (2048, 1)) + torch.arange(LENGTH)) % WORDS  # counting upwards from anywhere
noisy = torch.where(torch.rand(clean.shape) < NOISE, torch.randint(WORDS, clean.shape), clean)
data = Dataset.from_list([{"text": " ".join(map(str, row))} for row in noisy.tolist()])

vocabulary = {word: i for i, word in enumerate(["<pad>", "<s>", "</s>", "<unk>", *map(str, range(WORDS))])}
tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=tokenizer, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>"
)
config = LlamaConfig(
    vocab_size=len(vocabulary),
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=1,
    num_attention_heads=2,
    pad_token_id=0,
)

with tempfile.TemporaryDirectory() as folder:
    trainer = SFTTrainer(
        model=LlamaForCausalLM(config),
        objective=errornorm.ent_fraction(NOISE, scope="running", start=25),
        args=SFTConfig(
            output_dir=folder,
            max_steps=100,
            per_device_train_batch_size=16,
            gradient_accumulation_steps=2,
            learning_rate=1e-2,
            logging_steps=25,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
        ),
        train_dataset=data,
        processing_class=tokenizer,
    )
    trainer.train()
print(trainer.handle.summary())
