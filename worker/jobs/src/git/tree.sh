# Begins scripts that ask where the user works.
# Finds the tree of a repository ($1) in which a directory ($2) lies, else the main one: $tree. No link is in either path. No git is asked
# there: tools may write there, and a `.git` that one plants would answer. A linked tree counts if the repository names it, too.
tree_of() {
    local at own main='' line
    at=$2
    while [ -n "$at" ] && [ "$at/.git" != "$1" ]; do
        if [ -f "$at/.git" ] && [ ! -L "$at/.git" ] && IFS= read -r line <"$at/.git" && own=$(cd -- "$at" && realpath -qe -- "${line#gitdir: }"); then
            [ "${own%/*}" != "$1/worktrees" ] || [ "$(cd -- "$own" && realpath -qe -- "$(<gitdir)")" != "$at/.git" ] || break
            # The outermost one: none can be planted above the team.
            [ "$own" != "$1" ] || [[ $1 == */.git ]] || main=$at
        elif [ -L "$at/.git" ] && [ "$(realpath -qe -- "$at/.git")" = "$1" ]; then
            main=$at
        fi
        at=${at%/*}
    done
    [ -n "$at" ] || at=${main:-${1%/.git}}
    tree=$at
}
# Finds the tree of the user's repository in which the team lies: $tree, of $source.
users_tree() {
    read_source
    tree_of "$source" "$T_TEAM"
}
# Finds where the team lies in that tree: $prefix, which is empty at its top, and elsewhere.
prefix_of_team() {
    users_tree
    prefix=
    [[ $T_TEAM != "$tree"/* ]] || prefix=${T_TEAM#"$tree"/}
}
