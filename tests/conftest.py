"""What holds for all tests."""

from __future__ import annotations

from twisted.logger import globalLogBeginner

# Until logging begins, Twisted keeps events; a command under test would print those of all tests
# before it.
globalLogBeginner.beginLoggingTo([], redirectStandardIO=False, discardBuffer=True)
