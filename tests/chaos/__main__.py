"""Kills processes of running jobs, by SIGKILL, and looks for each of their rows in what they wrote.

    python -m tests.chaos --cluster processes|spark --sink files|postgres --kills N [--freezes N]
                          [--faults N] [--fault NAME]
                          [--pipeline numbered|nexmark-q5] [--seed S] [--jobs J] [--json]

Members and coordinators die at random moments and at each crash point of a snapshot round; J jobs at once. The pipeline
is one of numbered rows, or a query of NEXMark about 5 million events with a snapshot each second, whose rows must be
those of DuckDB; its processes die at random moments. On Spark (three executors of this host) members are Python
workers, and executors and drivers die, too: a driver with its JVM. `--freezes` members are stopped by SIGSTOP for
longer than their lease, half of them together with their coordinator, and go on when others have taken their place:
then they must end, and nothing of theirs may be committed. On processes only.
`--faults` happen around the job in between, see tests/chaos/faults.py; `--fault` names the only kind. As root: a store
that becomes full is a small file system of its own.

With --json the last line is one object: `kills`, `kills_per_point`, `rows` (that were to be written), `lost`,
`duplicated`, `wrong` (rows that nobody has read), `left` (transactions and files that are neither visible nor removed),
`stuck`, `freezes`, `zombies` (frozen members that went on), `faults`, `faults_by_kind`, and `recovery_s_mean` and
`recovery_s_worst`: seconds from a kill to the first result after it.

Exit code 0: all is as it should be; 1: something was lost, duplicated or stuck, and standard error says what.
"""

import argparse
import json
import sys
from typing import get_args

from tests.chaos.campaign import failed, run_campaign, tell_on_standard_error
from tests.chaos.faults import FAULTS, possible_faults
from tests.chaos.grounds import ClusterKind
from tests.chaos.targets import SinkKind
from tests.chaos.works import NUMBERED_ON_SPARK, WORKS


def main(arguments: list[str] | None = None) -> int:
    """Run what the command line says; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--cluster", choices=get_args(ClusterKind), default="processes")
    parser.add_argument("--sink", choices=get_args(SinkKind), required=True)
    parser.add_argument("--pipeline", choices=list(WORKS), default="numbered", help="nexmark-q5 needs files")
    parser.add_argument("--kills", type=int, required=True, help="how many, or one more")
    parser.add_argument("--freezes", type=int, default=0, help="members that are frozen for longer than a lease")
    parser.add_argument("--faults", type=int, default=0, help="faults of the store and the database")
    parser.add_argument("--fault", choices=FAULTS, help="only of this kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=0, help="how many at once; default: 2, on Spark 1")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")
    options = parser.parse_args(arguments)
    if min(options.kills, options.jobs, options.freezes, options.faults) < 0:
        parser.error("--kills, --jobs, --freezes and --faults must not be negative")
    if options.kills + options.freezes + options.faults == 0:
        parser.error("nothing is to happen: give --kills, --freezes or --faults")
    if options.fault is not None and options.fault not in possible_faults(options.sink):
        parser.error(f"--fault {options.fault} needs --sink postgres")
    work = WORKS[options.pipeline]
    if options.cluster == "spark":
        if options.freezes or options.faults:
            parser.error("--freezes and --faults: jobs on processes only")
        if work.query:
            parser.error(f"--pipeline {options.pipeline} runs on processes only")
        work = NUMBERED_ON_SPARK
    if work.query and options.sink != "files":
        parser.error(f"--pipeline {options.pipeline} writes files only")
    figures = run_campaign(
        options.sink,
        options.kills,
        freezes=options.freezes,
        faults=options.faults,
        fault=options.fault,
        work=work,
        seed=options.seed,
        jobs_at_once=options.jobs or (1 if options.cluster == "spark" else 2),
        tell=tell_on_standard_error,
    )
    for problem in figures["stuck"]:
        print(problem, file=sys.stderr)
    figures["stuck"] = len(figures["stuck"])
    if options.json:
        print(json.dumps(figures))
    else:
        for name, value in figures.items():
            print(f"{name}: {value}")
    asked = {"kills": options.kills, "freezes": options.freezes, "faults": options.faults}
    return 1 if failed(figures) or any(wanted and not figures[name] for name, wanted in asked.items()) else 0


if __name__ == "__main__":
    sys.exit(main())
