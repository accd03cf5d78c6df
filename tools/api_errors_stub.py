"""Writes `api_errors.pyi` of the client: the error classes that are made at run time.

python tools/api_errors_stub.py            writes it
python tools/api_errors_stub.py --check    fails if it is not up to date
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tradewind.client import api_errors

STUB = Path(__file__).parent.parent / "src/tradewind/client/api_errors.pyi"
HEAD = '''"""The errors of the JetStream API; written by tools/api_errors_stub.py, never by hand."""

from tradewind.api.errors import ApiError, ErrorKind
from tradewind.client.errors import ClientError

class JetStreamApiError(ApiError, ClientError):
    hint: str

def class_name(kind_name: str) -> str: ...
def kinds() -> dict[str, ErrorKind]: ...
def make_api_error(code: int, err_code: int, description: str) -> JetStreamApiError: ...

'''


def make_stub() -> str:
    """The text of the stub, one line per class in the order of the error codes."""
    names = [api_errors.class_name(name) for name in api_errors.kinds()]
    return HEAD + "".join(f"class {name}(JetStreamApiError): ...\n" for name in names)


def main() -> int:
    """Write the stub, or tell whether it is up to date."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    text = make_stub()
    if parser.parse_args().check:
        return 0 if STUB.exists() and STUB.read_text() == text else 1
    STUB.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
