"""The doors: files, tables, arrays and Minari data sets, each checked by `privrl.data.decoder`."""

from privrl.data.readers.arrays import from_arrays
from privrl.data.readers.minari import from_minari
from privrl.data.readers.tables import from_csv, from_parquet, from_table

__all__ = ["from_arrays", "from_csv", "from_minari", "from_parquet", "from_table"]
