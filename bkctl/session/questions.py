"""A command's questions: whether to continue with a change, and for a password.

Safety checks, which refuse without a question, are in ``safety_checks``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from bkctl.errors import NothingFoundError, RefusedError
from bkctl.exit_status import Effect
from bkctl.output.forms.value_text import safe

if TYPE_CHECKING:
    from bkctl.environment_and_streams import Host
    from bkctl.global_options import Options
    from bkctl.session.stderr_and_stdin import Messages


class Questions:
    """Questions on stderr with answers from stdin; without a terminal nothing is asked."""

    def __init__(self, options: Options, messages: Messages) -> None:
        self._options, self._messages = options, messages

    @property
    def _host(self) -> Host:
        return self._messages.host

    @property
    def can_ask(self) -> bool:
        """True if a person can answer."""
        stdin, stderr = self._host.stdin, self._host.stderr
        return not self._options.no_input and stdin.isatty() and stderr.isatty()

    def confirm(
        self, plan: Iterable[str], question: str, effect: Effect, proof: str | None
    ) -> None:
        """Show ``plan`` and ask, in the way of the ``Effect``.

        A command that loses data prints the ``question``, if any, and asks the user to type
        ``proof`` (an id). All other commands ask for yes or no.

        Raises:
            RefusedError: the answer was no, or there is no terminal to ask.
        """
        assert effect is not Effect.READ, "a command that only reads has nothing to ask"
        assert (proof is not None) == (effect is Effect.LOSES_DATA), "which id is to be typed?"
        if self._options.yes:
            return
        profile = self._options.used_profile
        if profile is not None and profile.production:
            self._messages.say(f"profile {profile.name} is marked production")
        for line in plan:
            self._messages.say(line)
        if not self.can_ask:
            again, why = self._options.again("--yes"), "there is no terminal to ask"
            if "-" in self._options.args:
                again = f"... | {again}"
                why = "the answer cannot come from stdin, which is read for ids"
            asked = f": {question}" if question else ""
            refused = RefusedError(f"{why}{asked}", next_step=f"add --yes: {again}")
            refused.unasked = True
            raise refused
        if effect is Effect.LOSES_DATA:
            answer = self._ask(f"{question}\n".lstrip() + f"To confirm, type {proof}: ")
            agreed = answer == proof
            if answer.lower() in {"y", "yes"} and not agreed:
                raise RefusedError(f"not confirmed: {answer} is not {proof}; nothing was changed")
        else:
            agreed = self._ask(f"{question} [y/N] ").lower() in {"y", "yes"}
        if not agreed:
            raise RefusedError("not confirmed; nothing was changed")

    def _ask(self, prompt: str) -> str:
        self._host.stderr.write(safe(prompt))
        self._host.stderr.flush()
        answer = self._host.stdin.readline()
        if not answer:  # End of input counts as no.
            self._host.stderr.write("\n")
        return answer.strip()

    def password(self, path: str | None) -> bytes:
        """Return a ledger password: the file's content without its last newline.

        Empty without a file.

        The path ``-`` is the first line of stdin; on a terminal the password is asked for.

        Raises:
            NothingFoundError: the file is missing, or this user may not read it.
        """
        if path is None:
            return b""
        if path == "-":
            return self._password_typed()
        try:
            with open(path, "rb") as file:  # noqa: PTH123 -- pathlib costs start time
                data = file.read()
        except OSError as error:
            raise NothingFoundError(
                f"password file {path}: {error.strerror}",
                next_step="--password-file takes the name of a file; `-` asks for the password",
            ) from error
        return data.removesuffix(b"\n").removesuffix(b"\r")

    def _password_typed(self) -> bytes:
        if not self.can_ask:
            line = self._host.stdin.buffer.readline()
            return line.removesuffix(b"\n").removesuffix(b"\r")
        from getpass import getpass

        return os.fsencode(getpass("Password: ", stream=self._host.stderr))
