"""Make question-and-answer text with reasoning-gym (Apache-2.0).

The only module that imports it. `gsm_symbolic` never trains: its templates are GSM8K test items.
"""

import importlib.metadata
from collections.abc import Iterator

from bam_lab.errors import InputError
from bam_lab.spec.sources import GeneratorSource


def documents(source: GeneratorSource) -> Iterator[tuple[str, str]]:
    """Yield (name, text), `items_per_document` questions of one generator in each.

    Raises:
        InputError: the package is missing or of another version, or has no such generator.
    """
    try:
        installed = importlib.metadata.version(source.package)
    except importlib.metadata.PackageNotFoundError:
        installed = "nothing"
    if installed != source.version:
        raise InputError(
            f"{source.name} needs {source.package} {source.version}, got {installed}. "
            f"Run: pip install 'bam-lab[data]' {source.package}=={source.version}"
        )
    import reasoning_gym  # heavy, and only in the extra `data`
    from reasoning_gym.factory import DATASETS

    unknown = [name for name in source.datasets if name not in DATASETS]
    if unknown:
        raise InputError(
            f"{source.name}: datasets must name generators of {source.package}, got "
            f"{', '.join(unknown)}. Mend them in the corpus."
        )
    for name in source.datasets:
        items = reasoning_gym.create_dataset(name, seed=source.rng_seed, size=source.items)
        texts = [f"Question: {item['question']}\nAnswer: {item['answer']}" for item in items]
        for start in range(0, len(texts), source.items_per_document):
            yield (
                f"{name}#{start}",
                "\n\n".join(texts[start : start + source.items_per_document]),
            )
