"""What other processes may ask of a job over its socket, and what it answers: one line of JSON each way.

    {"do": "status", "protocol": 1}     ->  {"is": "done", "protocol": 1, "report": {...}}
    {"do": "suspend", "protocol": 1}    ->  {"is": "refused", "protocol": 1, "kind": "OperationRefused", "message": "?"}

One request a connection. The answer comes when what was asked for is done, or refused; who does not want to wait for it
hangs up. A request names an operation of the job handle and nothing else: no code, no object, no path.
"""

import msgspec
from msgspec import Struct

from jetfast.control.job_report import JobReport
from jetfast.errors import ProtocolError

PROTOCOL = 1
REQUEST_BYTES_MAX = 4096
"""A request is an operation and perhaps a name."""
ANSWER_BYTES_MAX = 16 * 1024 * 1024


class Status(Struct, frozen=True, forbid_unknown_fields=True, tag_field="do", tag="status"):
    """Where does the job stand?"""

    protocol: int = PROTOCOL


class Cancel(Struct, frozen=True, forbid_unknown_fields=True, tag_field="do", tag="cancel"):
    """As `Job.cancel`; answered when the job has ended."""

    protocol: int = PROTOCOL


class Suspend(Struct, frozen=True, forbid_unknown_fields=True, tag_field="do", tag="suspend"):
    """As `Job.suspend`."""

    protocol: int = PROTOCOL


class Resume(Struct, frozen=True, forbid_unknown_fields=True, tag_field="do", tag="resume"):
    """As `Job.resume`."""

    protocol: int = PROTOCOL
    accept_loss: list[str] = []


class Restart(Struct, frozen=True, forbid_unknown_fields=True, tag_field="do", tag="restart"):
    """As `Job.restart`."""

    protocol: int = PROTOCOL


class ExportSnapshot(Struct, frozen=True, forbid_unknown_fields=True, tag_field="do", tag="export_snapshot"):
    """As `Job.export_snapshot`, or, with `cancel`, `Job.cancel_and_export_snapshot`."""

    name: str
    cancel: bool = False
    protocol: int = PROTOCOL


Request = Status | Cancel | Suspend | Resume | Restart | ExportSnapshot


class Done(Struct, frozen=True, tag_field="is", tag="done"):
    """It is done. `report`: where the job stands now."""

    report: JobReport
    protocol: int = PROTOCOL


class Refused(Struct, frozen=True, tag_field="is", tag="refused"):
    """It is not done. `kind`: the class of the error."""

    kind: str
    message: str
    protocol: int = PROTOCOL


Answer = Done | Refused

_request_decoder = msgspec.json.Decoder(Request)
_answer_decoder = msgspec.json.Decoder(Answer)
_encoder = msgspec.json.Encoder()


def encode_line(message: Request | Answer) -> bytes:
    """Return a message as one line."""
    return _encoder.encode(message) + b"\n"


def decode_request(line: bytes) -> Request:
    """Read a request. Raises ProtocolError saying what is wrong with it."""
    try:
        request: Request = _request_decoder.decode(line)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ProtocolError(f"this is no request to a job: {error}") from error
    _require_protocol(request.protocol)
    return request


def decode_answer(line: bytes) -> Answer:
    """Read an answer; what it tells besides is left out. Raises ProtocolError."""
    try:
        answer: Answer = _answer_decoder.decode(line)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ProtocolError(f"this is no answer of a job: {error}") from error
    _require_protocol(answer.protocol)
    return answer


def _require_protocol(protocol: int) -> None:
    if protocol != PROTOCOL:
        raise ProtocolError(
            f"version {protocol} of the protocol is spoken there, {PROTOCOL} here: use the command line of the jetfast "
            "that runs the job"
        )
