"""What is measured of encrypted streams: what the ciphers add to a publish and to a read.

The same as `js-publish-128`, `js-publish-1k` and `js-pull-none` with a key in the configuration of
both servers. Never starts a server: the runner does.
"""

from benchmarks.measure import Workload
from benchmarks.stream_workloads import RELAXED, publishing, pulling

CHACHA = RELAXED.replace(" }", ', key: "a secret" }')
AES = RELAXED.replace(" }", ', key: "a secret", cipher: aes }')

ENCRYPTED_WORKLOADS = (
    Workload("js-chacha-128", "encrypted, 128 B", publishing(count=500_000), CHACHA),
    Workload(
        "js-chacha-1k", "encrypted, 1 KiB", publishing(count=200_000, payload_size=1024), CHACHA
    ),
    Workload("js-aes-128", "encrypted by AES, 128 B", publishing(count=500_000), AES),
    Workload(
        "js-chacha-pull",
        "encrypted, fetch, ack none",
        pulling(count=500_000, acknowledge=False),
        CHACHA,
    ),
)
