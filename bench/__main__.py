"""`python -m bench [--short] [NAME ...]`: measures, prints, and ends with the numbers against their bounds."""

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from bench import capture, client, idle, lag, latency, rest
from bench.measure import Report

BENCHES = {
    "capture": capture.run,
    "lag": lag.run,
    "rest": rest.run,
    "client": client.run,
    "latency": latency.run,
    "idle": idle.run,
}

_AT = "/var/tmp"  # noqa: S108 - on a disk, as homes are; the folder in it is private


def main() -> int:
    """Runs what is asked for; 1 where something is broken, a missed number alone is none."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--short", action="store_true", help="small sizes and few rounds, as in CI (under 2 minutes)")
    parser.add_argument("--keep", action="store_true", help="leave the scratch folder behind")
    # Not /tmp: it is often in memory. On ext4 it should be no folder from which thousands of files were deleted lately:
    # making a file there takes up to 1 ms instead of 0.03, since fresh inodes are looked for among those.
    parser.add_argument("--at", default=_AT, metavar="DIR", help="where the scratch folder goes (default: %(default)s)")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of {', '.join(BENCHES)} (default: all)")
    args = parser.parse_args()
    if unknown := set(args.names) - BENCHES.keys():
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    report = Report(short=args.short)
    scratch = Path(tempfile.mkdtemp(prefix="ckpt-bench-", dir=args.at))
    try:
        for name in args.names or BENCHES:
            folder = scratch / name
            folder.mkdir()
            report.begin(name)
            BENCHES[name](folder, report)
            if not args.keep:
                shutil.rmtree(folder, ignore_errors=True)
    finally:
        if args.keep:
            print(f"\nkept: {scratch}")
        else:
            shutil.rmtree(scratch, ignore_errors=True)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
