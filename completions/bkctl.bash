# Completion of bkctl for bash; made by `bkctl completion bash`.
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
