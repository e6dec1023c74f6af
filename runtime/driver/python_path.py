"""Makes Python load Spark's modules from the installed package, where they are compiled already."""

from __future__ import annotations

import sys
import zipimport
from pathlib import Path

_ARCHIVES = (".zip", ".jar")


def use_installed_spark() -> None:
    """Leaves the archives of an installed pyspark out of the path in which this process looks for modules.

    Spark puts them first: pyspark.zip, whose modules Python compiles anew in each process, and the jar of
    spark-core, which holds none, and whose list of 6,000 classes Python would read and keep. Where
    SPARK_HOME is another Spark than the installed one, its archives stay.
    """
    packages = (Path(entry, "pyspark") for entry in sys.path)
    installed = next((package for package in packages if (package / "__init__.py").is_file()), None)
    for entry in [entry for entry in sys.path if entry.endswith(_ARCHIVES)]:
        if installed is not None and Path(entry).resolve().is_relative_to(installed.resolve()):
            sys.path.remove(entry)
            sys.path_importer_cache.pop(entry, None)
            zipimport._zip_directory_cache.pop(entry, None)  # type: ignore[attr-defined]
