# pyarrow makes its compute functions when it is imported: no checker can see them.
from typing import Any

def __getattr__(name: str) -> Any: ...
