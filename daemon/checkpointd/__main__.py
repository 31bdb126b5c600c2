"""The command `checkpointd`: for service managers, and for what `ckpt` starts as a child."""

import argparse
import os
import sys


def main(argv: list[str] | None = None) -> int:
    """Runs the command that is asked for; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="checkpointd", description="Always-on checkpoints for coding agents: the daemon.",
        epilog="For people there is `ckpt`: `ckpt up` starts this in the background.",
    )  # fmt: skip
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    run = verbs.add_parser("run", help="the daemon in the foreground (Type=notify)")
    run.add_argument("--log", metavar="FILE", help="log to FILE, rotated, instead of stderr")
    run.add_argument("--debug", action="store_true", help="log single files, too")
    verbs.add_parser("demo", help="a show in a scratch directory")
    doctor = verbs.add_parser("doctor", help="explains why no daemon answers")
    doctor.add_argument("--rebuild", action="store_true", help="make the catalog anew from vaults and logs")
    doctor.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args(argv)
    if args.verb == "demo":
        from checkpointd import demo

        return demo.main()
    if args.verb == "doctor":
        from checkpointd import doctor as examination

        return examination.main(dict(os.environ), rebuild=args.rebuild, as_json=args.json)
    # Each verb imports what it needs: the demo never loads the daemon.
    from checkpointd import app

    return app.main(dict(os.environ), log_file=args.log, debug=args.debug)


if __name__ == "__main__":
    sys.exit(main())
