# Completion of bkctl for fish; made by `bkctl completion fish`.
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
