import ul2_tasks
from ul2_tasks.images.example_set import example_sources
from ul2_tasks.images.special_tokens import SpecialTokenConfig

LENGTHS = {"inputs": 512, "targets": 512}
VOCABULARY = ul2_tasks.open_renderer("harmony:default").vocabulary  # with the tokens of conversations
OBJECTIVE = {"vocabulary": VOCABULARY, "denoisers": ul2_tasks.T5GEMMA2[3:], "sentinels": range(3, 203), "random_access": True}
RUN = ul2_tasks.ImageTokens(boi_id=203, image_id=204, eoi_id=205, image_seq_length=4)

text = ul2_tasks.register("text", **OBJECTIVE)
documents = ul2_tasks.register("documents", merge_examples=False, **OBJECTIVE)
chat = ul2_tasks.register_chat("talks", truncation="drop", random_access=True)
reply = ul2_tasks.register_chat("talks", truncation="drop", random_access=True, format="prompt_completion")
photos = ul2_tasks.register_image_text("photos", image_tokens=RUN, **OBJECTIVE)


def rows(*more, **settings):
    """Needs PyTorch, which nothing above does."""
    special_tokens = SpecialTokenConfig(bos_id=0, eos_id=1, boi_id=203, eoi_id=205)
    budgets = {"tokens": 16384, "vit": 8192, "vae": 8192}
    return ul2_tasks.ImageTextDataset([*example_sources(), *more], special_tokens, VOCABULARY, budgets, pool=16, **settings)
