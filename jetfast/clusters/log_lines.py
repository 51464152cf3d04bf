"""Log records as lines of text, from one process to another that logs them as its own."""

import json
import logging
import sys

_MARK = "\x1e"  # of RFC 7464: begins a line that is a record, not what somebody else wrote there


class LogLineHandler(logging.Handler):
    """Writes each record to standard error as one line."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, its traceback included."""
        try:
            text = self.format(record)
            line = f"{_MARK}{json.dumps([record.name, record.levelno, text])}\n"
            sys.stderr.write(line)
            sys.stderr.flush()
        except OSError:  # whoever read them has gone
            pass
        except Exception:
            self.handleError(record)


def log_line(line: str, who: str, stray: logging.Logger) -> None:
    """Log here what a line from elsewhere says; `who` begins it. A line that is no record becomes a warning."""
    name, level, text = stray.name, logging.WARNING, line.rstrip("\n")
    if line.startswith(_MARK):
        try:
            name, level, text = json.loads(line[len(_MARK) :])
            level = int(level)
        except (ValueError, TypeError):
            pass  # two writers at once: it is shown as it came
    if text.strip():
        logging.getLogger(name).log(level, "%s: %s", who, text)
