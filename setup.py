"""Packaging; `pip install .` is all that `python -m ul2_tasks` needs."""

import pathlib
import re

import setuptools

HERE = pathlib.Path(__file__).parent
VERSION = re.search(r'__version__ = "(.*)"', (HERE / "ul2_tasks/version.py").read_text()).group(1)

# t5 brings seqio-nightly and tfds-nightly, which write into the folders of seqio and tensorflow-datasets. pip installs
# them first when all are installed at once, so that the wanted ones remain; tests/test_installation.py checks that.
T5 = ["t5==0.9.4"]

# What t5x, airio and jestimator need beside what seqio brings. They themselves are in no registry: put checkouts of them
# on PYTHONPATH. t5x's own setup.py asks for tensorflow-cpu, which would write into the folder of tensorflow.
T5X = ["cached_property", "chex", "clu", "fiddle>=0.2.5", "flax", "grain", "jax", "jaxtyping", "tensorboard"]

HUGGING_FACE = ["datasets>=3.2", "tokenizers>=0.21", "jinja2>=3.1.6"]  # hf: corpora, tokenizer.json, its chat template

# PyTorch datasets, Transformers' models and Trainer, and the DataLoader that saves where it is.
TORCH = ["torch>=2.2", "transformers>=4.50", "accelerate", "torchdata>=0.8"]

REPORT = ["jinja2>=3", "markupsafe", "matplotlib>=3.8"]  # `ul2 report`

CACHE = ["apache-beam[tfrecord]>=2.77"]  # seqio_cache_tasks, `ul2 cache`
DASK = ["apache-beam[dask]>=2.77"]  # the same on a Dask cluster

CHAT = ["tiktoken>=0.9", "openai-harmony>=0.0.8"]  # conversations in o200k_harmony's tokens

IMAGES = ["pillow>=11", "av>=14.1"]  # images, and the frames of videos

DEV = ["mypy>=2", "ruff>=0.9"]

DOCS = [  # `mkdocs build --strict`
    "mkdocs>=1.6,<2",
    "mkdocs-material>=9.6",
    "mkdocstrings[python]>=0.29",
    # From 12.2 on it asks for an argument that the last mkdocstrings for Python 3.10 does not give.
    "pymdown-extensions<12.2; python_version < '3.11'",
    *DEV,
]

setuptools.setup(
    name="ul2_tasks",
    version=VERSION,
    description="UL2 pre-training data for SeqIO and t5x: the mixture of denoisers, as T5Gemma 2 uses it",
    long_description=(HERE / "README.md").read_text(),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    license_files=["LICENSE"],
    # The gin files are in the package when it is installed, so that they come with it.
    packages=[*setuptools.find_packages(include=["ul2_tasks", "ul2_tasks.*"]), "ul2_tasks.gin", "ul2_tasks.gin.models"],
    package_dir={"ul2_tasks.gin": "gin"},
    package_data={"ul2_tasks": ["py.typed", "data/*"], "ul2_tasks.gin": ["*.gin"], "ul2_tasks.gin.models": ["*.gin"]},
    python_requires=">=3.10,<3.14",
    install_requires=[
        "seqio>=0.0.20,<0.1",
        "tensorflow>=2.21,<2.22",
        "tensorflow-text>=2.21,<2.22",
        "sentencepiece>=0.2,<0.2.3",  # 0.2.3 breaks `import seqio` beside the protobuf that apache-beam allows
        "backports.zstd",
        "click>=8",
        "fsspec>=2024.2",
        "gin-config",
        "protobuf",
        # tensorflow-metadata's bound on Python 3.10, which pip does not find by itself when it has apache-beam's to keep too.
        "protobuf<=6.32; python_version < '3.11'",
        "numba>=0.61",  # the first for Python 3.13
        "numpy",
        "packaging",
        "pyarrow>=18",
        "rich>=13",
        "scipy>=1.11",
        "tensorflow-datasets",
        "wrapt>=1.15",  # which tensorflow brings anyway
    ],
    entry_points={"console_scripts": ["ul2 = ul2_tasks.cli:program"]},
    extras_require={
        "cache": CACHE,
        "chat": CHAT,
        "dask": DASK,
        "huggingface": HUGGING_FACE,
        "images": IMAGES,
        "report": REPORT,
        "docs": DOCS,
        "torch": TORCH,
        "t5": T5,  # t5.data, for downstream tasks and as the benchmarks' peer
        "t5x": T5X,
        "test": [
            *T5,
            *CACHE,
            *CHAT,
            *DASK,
            *HUGGING_FACE,
            *IMAGES,
            *REPORT,
            *DOCS,
            # No torch, which would bring gigabytes of CUDA: the tests that need it skip, and .ci/run adds a CPU build.
            "pytest>=8",
            "pytest-xdist>=3.7",
            "hypothesis>=6",
            "moto[server]>=5",  # a server of S3, its client, and an emulator of Google's store with its client
            "s3fs>=2024.2",
            "gcp-storage-emulator",
            "gcsfs>=2024.2",
            # Peers of the tokenizers' tests; the first brings real ranks and models, the second the file o200k_base.tiktoken.
            "mistral-common>=1.8",
            "bpe-openai",
            "transformers",
        ],
        "benchmarks": [*T5, *CACHE],
        "dev": DEV,
    },
)
