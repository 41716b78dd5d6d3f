"""Turn what a package ships into documents: pure functions from members to (name, text).

A document is one licence, article, file, docstring, chapter, recipe: whatever its source treats as
one piece. Nothing here depends on the Python version that runs it, except that modules which this
Python cannot parse give no docstrings. One function an extractor, by family: `law`, `prose`,
`manuals`, `code`, `mathematics`, `evaluation`.
"""

from typing import assert_never

from bam_lab.data.sources.extract import code, evaluation, law, manuals, mathematics, prose
from bam_lab.data.sources.extract.text import Documents, Members
from bam_lab.errors import InputError
from bam_lab.spec.sources import Extractor


def documents(extractor: Extractor, members: Members) -> Documents:
    """Yield (name, text) of every document, with the extractor that the spec names.

    Raises:
        InputError: a member is not what the extractor knows (another package or version).
    """
    try:
        yield from _documents(extractor, members)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"extractor {extractor} must fit what the members hold, got "
            f"{type(error).__name__}: {error}. Mend the source's extractor, members or version."
        ) from error


def _documents(extractor: Extractor, members: Members) -> Documents:
    match extractor:
        case "api_manuals":
            return manuals.api_manuals(members)
        case "chat_items":
            return evaluation.chat_items(members)
        case "choice_items":
            return evaluation.choice_items(members)
        case "cookbook":
            return prose.cookbook(members)
        case "dictionary":
            return prose.dictionary(members)
        case "docstrings":
            return code.docstrings(members)
        case "eu_articles":
            return law.eu_articles(members)
        case "factbook":
            return prose.factbook(members)
        case "gutenberg":
            return prose.gutenberg(members)
        case "html_pages":
            return manuals.html_pages(members)
        case "human_eval":
            return evaluation.human_eval(members)
        case "kjv":
            return prose.kjv(members)
        case "metamath":
            return mathematics.metamath(members)
        case "proof_scripts":
            return mathematics.proof_scripts(members)
        case "python_files":
            return code.python_files(members)
        case "r_texts":
            return prose.r_texts(members)
        case "scancode":
            return law.scancode(members)
        case "source_files":
            return code.source_files(members)
        case "spdx_licences":
            return law.spdx_licences(members)
        case "web_c4":
            return evaluation.web_samples(members, "c4")
        case "web_openwebtext":
            return evaluation.web_samples(members, "openwebtext")
        case "web_oscar":
            return evaluation.web_samples(members, "oscar")
        case "web_wikipedia":
            return evaluation.web_samples(members, "wikipedia")
        case "wikipedia_intros":
            return prose.wikipedia_intros(members)
        case "wordnet":
            return prose.wordnet(members)
        case _:
            assert_never(extractor)
