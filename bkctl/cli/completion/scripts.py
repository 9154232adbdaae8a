"""The scripts that let Tab complete ``bkctl``, one for each shell.

A script sends the line up to the cursor to ``bkctl`` (``bkctl.cli.completion.candidates``). The
answer is one line with the kind (values, files or dirs), and then the values. ``completions/`` has
the same scripts as files, written by ``bkctl.manual.generate``.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

VARIABLE: Final = "_BKCTL_COMPLETE"
"""Set to a shell's name, it makes ``bkctl`` answer a script instead of running a command."""

LINE: Final = "_BKCTL_LINE"
"""The line up to the cursor."""

BREAKS: Final = "_BKCTL_BREAKS"
"""The characters besides blanks at which bash splits words; bash keeps the text before them."""

_BASH: Final = r"""# Completion of bkctl for bash; made by `bkctl completion bash`.
# Put it where bash-completion looks, or into ~/.bashrc: eval "$(bkctl completion bash)"

_bkctl() {
    local program=${1/#\~\//$HOME/} reply
    type -P -- "$program" >/dev/null || program=bkctl
    mapfile -t reply < <(
        _BKCTL_COMPLETE=bash _BKCTL_LINE=${COMP_LINE:0:COMP_POINT} \
            _BKCTL_BREAKS=$COMP_WORDBREAKS "$program" 2>/dev/null
    )
    COMPREPLY=()
    case ${reply[0]-} in
        files) compopt -o default ;;
        dirs) compopt -o dirnames ;;
        values) COMPREPLY=("${reply[@]:1}") ;;
    esac
}

complete -o nosort -F _bkctl bkctl
"""

_ZSH: Final = r"""#compdef bkctl
# Completion of bkctl for zsh; made by `bkctl completion zsh`.
# Put it as _bkctl into a directory of $fpath, or into ~/.zshrc: eval "$(bkctl completion zsh)"

_bkctl() {
    local program=${~words[1]}
    local -a reply values
    whence -p -- $program >/dev/null || program=bkctl
    reply=("${(@f)$(
        _BKCTL_COMPLETE=zsh _BKCTL_LINE="${(j: :)words[1,CURRENT-1]} $QIPREFIX$PREFIX" \
            $program 2>/dev/null
    )}")
    case $reply[1] in
        files) compset -P '--*='; _files ;;
        dirs) compset -P '--*='; _files -/ ;;
        values)
            values=("${(@)reply[2,-1]}")
            (( $#reply > 1 )) && _describe -V bkctl values
            ;;
    esac
}

if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    _bkctl "$@"
else
    compdef _bkctl bkctl
fi
"""

_FISH: Final = r"""# Completion of bkctl for fish; made by `bkctl completion fish`.
# Put it as bkctl.fish into ~/.config/fish/completions, or: bkctl completion fish | source

function __bkctl_complete
    set -l token (commandline -ct)
    set -l option (string match -r -- '^--[^=]+=' $token)
    set -l path (string replace -r -- '^--[^=]+=' '' $token)
    set -l reply (
        set -lx _BKCTL_COMPLETE fish
        set -lx _BKCTL_LINE (commandline -cp | string collect)
        bkctl 2>/dev/null
    )
    switch "$reply[1]"
        case files
            string replace -r -- '^' "$option" (__fish_complete_path "$path")
        case dirs
            string replace -r -- '^' "$option" (__fish_complete_directories "$path")
        case values
            printf '%s\n' $reply[2..-1]
    end
end

complete -c bkctl -f -k -a '(__bkctl_complete)'
"""

SCRIPTS: Final = MappingProxyType({"bash": _BASH, "zsh": _ZSH, "fish": _FISH})

FILES: Final = MappingProxyType({"bash": "bkctl.bash", "zsh": "_bkctl", "fish": "bkctl.fish"})
"""The file name of each shell's script in ``completions/``."""
