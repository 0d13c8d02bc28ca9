# Begins scripts that write a tree in which submodules may be.
# Fills the submodules of a clone, and theirs, from local copies, in the user's tree: no address of `.gitmodules` is used. Those that the
# user has not filled stay empty, too.
fill_submodules() (
    unset GIT_DIR GIT_WORK_TREE
    from=() paths=() without=()
    [ -f .gitmodules ] && found=$(git config --file .gitmodules --get-regexp '^submodule\..*\.path$') || exit 0
    believe_user
    while read -r key path; do
        [[ $key$path != *=* && /$path/ != */../* ]] || { say note "submodules are empty: ${2:-}$path in .gitmodules cannot be used"; exit 0; }
        [ -e "$1/$path/.git" ] || { without+=("${2:-}$path"); continue; }
        from+=(-c "${key%.path}.url=$1/$path")
        paths+=("$path")
    done <<<"$found"
    case ${#without[@]} in
    0) ;;
    1) say note "the submodule ${without[0]} is empty, as it is in ${T_FROM:-$T_TOP}" ;;
    *) say note "${#without[@]} submodules are empty, as they are in ${T_FROM:-$T_TOP}: ${without[0]} and others" ;;
    esac
    for path in "${paths[@]}"; do
        if git "${from[@]}" submodule --quiet update --init --force -- ":(literal)$path"; then
            (cd -- "$path" && fill_submodules "$1/$path" "${2:-}$path/")
        else
            say note "the submodule ${2:-}$path is empty: $1 has no copy of it, or not of that commit"
            git submodule --quiet deinit --force -- ":(literal)$path" || true
        fi
    done
)
