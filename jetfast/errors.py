"""Every error jetfast raises on purpose, split by who must act.

    JetfastError
    ├── JobDefinitionError      the user: the pipeline, a setting or a submission is wrong; nothing has run
    │   ├── DurationError       (also ValueError)   "10 parsecs", negative
    │   ├── SystemUnavailable   a system that the job reads or writes is away now; submit again later
    │   └── ResourcesError      the cluster has too few slots, or lacks what the job needs
    │       └── PeerUnreachableError    members cannot reach each other
    ├── JobFailedError          the user: a row or a function of the user failed while running
    │   └── DataLostError       the operator: an outside system lost what a snapshot counts on
    ├── JobCancelledError       the user asked for it
    ├── OperationRefused        the user: a job where this one stands cannot do what was asked
    ├── JobNotFound             the user: no job of that name runs on this host
    ├── JobUnreachable          the operator: a running job does not answer other processes
    ├── RestartableError        nobody: a member or a connection was lost; restart from the last snapshot
    │   ├── MemberLostError
    │   ├── TransportError
    │   ├── StoreUnavailable
    │   ├── OutcomeUnknown
    │   └── RecordConflict
    ├── SnapshotDamaged         the operator: state is missing or altered
    └── ProtocolError           us: a message, a state or an order that must not happen
        └── InvalidTransition   a state machine got an event it has no transition for

Kernels raise ValueError, TypeError and OverflowError only. Say which thing, what was needed and what came, and raise
`from` the cause.
"""


class JetfastError(Exception):
    """Base of all errors of jetfast."""


class JobDefinitionError(JetfastError):
    """The pipeline, a setting or a submission is wrong. Raised before anything runs."""


class DurationError(JobDefinitionError, ValueError):
    """A duration that cannot be read, or is out of its range."""


class SystemUnavailable(JobDefinitionError):
    """A system that the job reads or writes cannot be reached now. Nothing has run: submit again later."""


class ResourcesError(JobDefinitionError):
    """The cluster has too few slots, or lacks something that the job needs."""


class PeerUnreachableError(ResourcesError):
    """A member cannot reach another one: settings are wrong, unless that one has just died."""


class JobFailedError(JetfastError):
    """A row or a function of the user failed while the job ran. The message names step, member and source partition."""


class DataLostError(JobFailedError):
    """A transaction that a snapshot contains was aborted by the outside system: its rows are lost there."""


class JobCancelledError(JetfastError):
    """The job was cancelled; what it had written under NONE stays where it is."""


class OperationRefused(JetfastError):
    """What was asked of a job cannot be done where the job stands, or the job ended before it was done."""


class JobNotFound(JetfastError):
    """No job of that name runs on this host, as far as this user can see."""


class JobUnreachable(JetfastError):
    """A job of another process is there, and does not answer; it may run all the same."""


class RestartableError(JetfastError):
    """Something outside the job broke; it may be restarted from its last snapshot."""


class MemberLostError(RestartableError):
    """A member died, or its lease ran out."""


class TransportError(RestartableError):
    """A connection between members broke."""


class StoreUnavailable(RestartableError):
    """A snapshot store cannot be reached, or is full: nothing was changed, or it does not matter whether it was."""


class OutcomeUnknown(RestartableError):
    """A write may have happened or not. No phase 2 of either kind; what is read after a restart is the truth."""


class RecordConflict(RestartableError):
    """Somebody else has replaced the execution record: this coordinator is an old one, and must stop."""


class SnapshotDamaged(JetfastError):
    """State is missing or altered; the message says what. The job does not start from it."""


class ProtocolError(JetfastError):
    """A message, a state or an order that must not happen: a bug in jetfast."""


class InvalidTransition(ProtocolError):
    """A state machine got an event that its present state has no transition for; the state is unchanged."""
