"""What older releases of PySpark cannot do."""

from __future__ import annotations

from typing import Final

import pytest
from pyspark.sql.datasource import DataSourceReader

from bkctl.commands.export.spark.log_stream import limits

needs_read_limits: Final = pytest.mark.skipif(
    limits is None,
    reason="before 4.2 the first micro-batch of a start has no limits, and AvailableNow ends early",
)

pushes_filters: Final = hasattr(DataSourceReader, "pushFilters")
"""Whether this PySpark is 4.1 or newer."""
