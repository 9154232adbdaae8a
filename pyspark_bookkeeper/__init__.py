"""The data source ``bookkeeper``, where PySpark finds it: no ``register`` is needed.

PySpark imports every installed top-level module named ``pyspark_*`` and takes its
``DefaultSource``.
"""

from __future__ import annotations

from bkctl.commands.export.spark.datasource import LedgerSource as DefaultSource

__all__ = ["DefaultSource"]
