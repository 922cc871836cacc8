#!/usr/bin/env python3
"""Makes a tiny random Llama model with a byte-level tokenizer and a chat template.
Needs no network, only what vLLM installs: torch, transformers, tokenizers, safetensors."""
import json, os, sys
os.environ.setdefault("HF_HUB_OFFLINE", "1")
out = sys.argv[1] if len(sys.argv) > 1 else "tiny-llama"
hidden = int(os.environ.get("HIDDEN", "64")); layers = int(os.environ.get("LAYERS", "2"))
os.makedirs(out, exist_ok=True)
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, decoders, trainers
from transformers import LlamaConfig, LlamaForCausalLM
tok = Tokenizer(models.BPE(unk_token="<unk>"))
tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tok.decoder = decoders.ByteLevel()
import random
random.seed(0)
syl = ["ba", "ko", "ri", "mu", "te", "lo", "sha", "ne", "pi", "do", "va", "ur", "en", "st", "al"]
words = ["".join(random.choices(syl, k=random.randint(2, 4))) for _ in range(400)]
corpus = ["The quick brown fox jumps over the lazy dog. Hello world, how are you today? Tell me a story about "
          "a server that crashed and came back to life 0123456789 user assistant system"] * 20 + [
          " ".join(random.choices(words, k=40)) for _ in range(400)]
# printable ASCII only (plus space and newline): no lone high bytes, so every generated token is whole text
ascii_only = [chr(b) for b in range(0x21, 0x7F)] + ["\u0120", "\u010a"]
specials = ["<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"]
tok.train_from_iterator(corpus, trainers.BpeTrainer(
    vocab_size=512, special_tokens=specials, show_progress=False,
    initial_alphabet=ascii_only))
tok.save(os.path.join(out, "tokenizer.json"))
vocab = tok.get_vocab_size()
vpad = (vocab + 63) // 64 * 64
tmpl = ("{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
json.dump({"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "<|im_end|>",
           "unk_token": "<unk>", "pad_token": "</s>", "model_max_length": 2048,
           "clean_up_tokenization_spaces": False, "chat_template": tmpl},
          open(os.path.join(out, "tokenizer_config.json"), "w"), indent=1)
json.dump({"bos_token": "<s>", "eos_token": "<|im_end|>", "unk_token": "<unk>", "pad_token": "</s>"},
          open(os.path.join(out, "special_tokens_map.json"), "w"))
torch.manual_seed(0)
cfg = LlamaConfig(vocab_size=vpad, hidden_size=hidden, intermediate_size=hidden * 2, num_hidden_layers=layers,
                  num_attention_heads=2, num_key_value_heads=2, head_dim=32 if hidden == 64 else hidden // 2,
                  max_position_embeddings=2048, bos_token_id=1, eos_token_id=4, pad_token_id=2,
                  tie_word_embeddings=False)
m = LlamaForCausalLM(cfg).to(torch.bfloat16)
m.save_pretrained(out, safe_serialization=True)
# make the config readable by old and new transformers alike
p = os.path.join(out, "config.json"); c = json.load(open(p))
c["torch_dtype"] = "bfloat16"; c.pop("dtype", None)
if "rope_theta" not in c: c["rope_theta"] = 10000.0
c.pop("rope_parameters", None); c.pop("transformers_version", None)
json.dump(c, open(p, "w"), indent=1)
g = os.path.join(out, "generation_config.json")
json.dump({"bos_token_id": 1, "eos_token_id": 4, "pad_token_id": 2}, open(g, "w"))
print("made", out, "vocab", vocab, "->", vpad, "params", sum(x.numel() for x in m.parameters()))
