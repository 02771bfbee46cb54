"""What the tests of texts with pictures share: small pictures, records, and a vocabulary with ids for runs."""

import io

import numpy as np
import seqio
from PIL import Image
from support import restore

import ul2_tasks
from ul2_tasks.denoising.denoisers import T5GEMMA2, SequentialDenoiser
from ul2_tasks.images.interleaved import PictureRun
from ul2_tasks.sources.pictures import PicturesInMemory

# ByT5's ids, then modes, the marks of pictures, and sentinels.
MODES = {"[R]": 259, "[S]": 260, "[X]": 261}
RUN = PictureRun(start=262, placeholder=263, end=264, tokens=4)
SENTINELS = list(range(368, 264, -1))
VOCABULARY = seqio.ByteVocabulary(extra_ids=110)
AROUND = list(VOCABULARY.encode("\n\n"))
A_RUN = [*AROUND, 262, *[263] * 4, 264, *AROUND]
SPECIAL = {"picture": RUN, "sentinels": SENTINELS, "modes": MODES}
S = T5GEMMA2[-1]
PREFIX = SequentialDenoiser(name="s", noise_density=0.75, mode="[S]", sentinel=False)


def picture(colour: int = 0, width: int = 6, height: int = 4) -> bytes:
    """A PNG of one grey; `colour` tells pictures apart."""
    file = io.BytesIO()
    Image.fromarray(np.full((height, width, 3), colour, np.uint8)).save(file, "PNG")
    return file.getvalue()


def in_memory(*records, validation: float = 0.0) -> PicturesInMemory:
    return PicturesInMemory(lambda: list(records), validation)


def registered(name: str, *records, **settings) -> str:
    return ul2_tasks.register_pictures(name, in_memory(*records), VOCABULARY, **{**SPECIAL, **settings})


def read(name: str, lengths=(256, 256), **settings) -> list[dict]:
    dataset = seqio.get_mixture_or_task(name).get_dataset(
        dict(zip(("inputs", "targets"), lengths)), **{"seed": 0, "shuffle": False, "num_epochs": 1, **settings}
    )
    return [{key: value.tolist() for key, value in one.items()} for one in dataset.as_numpy_iterator()]


def restored(example: dict, denoiser, special) -> list[int]:
    """The ids that an example was made of."""
    return restore(example, denoiser, special)
