"""What is measured of tamper-proof streams: what a chain adds to a publish.

The same as `js-publish-128` and the durable one with the metadata of a chain. nats-server passes
over them, so its figure is that of a stream without a chain. Never starts a server: the runner
does.
"""

from benchmarks.measure import Workload
from benchmarks.stream_workloads import DURABLE, DURABLE_S_MAX, RELAXED, publishing

SHA256 = {"tradewind.chain": "sha256"}
BLAKE3 = {"tradewind.chain": "blake3"}

CHAIN_WORKLOADS = (
    Workload("js-chain-128", "chained, 128 B", publishing(count=500_000, metadata=SHA256), RELAXED),
    Workload(
        "js-chain-blake3-128",
        "chained by BLAKE3, 128 B",
        publishing(count=500_000, metadata=BLAKE3),
        RELAXED,
    ),
    Workload(
        "js-chain-durable",
        "chained, synced, 128 B",
        publishing(count=500_000, metadata=SHA256, time_limit_s=DURABLE_S_MAX),
        DURABLE,
    ),
)
