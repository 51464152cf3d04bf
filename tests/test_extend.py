"""The module that extensions import from: its names, and that pages and examples use no other path."""

import re
from pathlib import Path

import jetfast.extend

ROOT = Path(__file__).parent.parent

NAMES = [
    "ACTIVE", "AcknowledgingReader", "AcknowledgingSource", "Aggregate", "BROADCAST", "BY_KEYS", "Batch",
    "BatchAggregate", "BatchRun", "DataLostError", "Delivery", "DiscoversPartitions", "EVENT_TIME", "Emit",
    "Guarantee", "IDLE", "JobDefinitionError", "JobFailedError", "MAIN_PORT", "Output", "PartitionReader",
    "Position", "Processor", "ProcessorContext", "Publisher", "PublishingSink", "RestartableError", "Rows", "Sink",
    "SinkWriter", "SnapshotKind", "Source", "SourceProcessor", "StateBatch", "TransactionOwner",
    "TransactionRules", "TransactionalSink", "TransactionalWriter", "TransportError", "Watermark",
    "WatermarkPolicy", "WatermarkPolicyFactory", "WatermarkThrottle", "WatermarkThrottleFactory",
]  # fmt: skip
"""Names that extensions rely on: one that goes needs a release with a DeprecationWarning first."""


def test_the_names_for_extensions_stay():
    assert sorted(jetfast.extend.__all__) == sorted(NAMES)
    assert all(hasattr(jetfast.extend, name) for name in NAMES)


def test_pages_import_contracts_from_this_module_alone():
    inside = re.compile(r"^\s*(?:from|import) jetfast\.(?:core|kernels|processors|engine|control)\b.*$", re.MULTILINE)
    found = {
        page.name: inside.findall(page.read_text())
        for page in (ROOT / "docs").rglob("*.md")
        if inside.search(page.read_text())
    }
    assert not found
