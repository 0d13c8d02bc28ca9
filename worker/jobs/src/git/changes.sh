# Begins scripts that ask what is not committed.
# Lists in $TMPDIR/changed what is not committed in a checkout. What hides it is not believed: bits of the index go, and no submodule is entered.
uncommitted() {
    git ls-files -v -z | sed -zn 's/^[a-zS] //p' >"$TMPDIR/hidden"
    if [ -s "$TMPDIR/hidden" ]; then
        git update-index -z --no-assume-unchanged --stdin <"$TMPDIR/hidden"
        git update-index -z --no-skip-worktree --stdin <"$TMPDIR/hidden"
    fi
    changed >"$TMPDIR/changed"
}
# Names what has changed in a tree and is not committed, as its own git sees it. A file whose bytes are those of its blob has not, though
# attributes would have it stored otherwise: those are listed in $TMPDIR/unchanged.
changed() {
    judge git --no-optional-locks status --porcelain=v2 -z --no-renames --untracked-files=normal "${1:---ignore-submodules=dirty}" >"$TMPDIR/status"
    local entry file how in_index here id number maybe=() ids=() found=()
    while IFS= read -r -d '' entry; do
        case $entry in
        '? '*) file=${entry:2} ;;
        'u '*) file=${entry#* * * * * * * * * * } ;;
        *)
            file=${entry#* * * * * * * * }
            read -r _ how _ _ in_index here _ id _ <<<"$entry"
            if [[ $how$in_index == .M$here && $here == 100* && $file != *$'\n'* ]]; then
                maybe+=("$file")
                ids+=("$id")
                continue
            fi
            ;;
        esac
        printf '%s\n' "${file//$'\n'/ }"
    done <"$TMPDIR/status"
    : >"$TMPDIR/unchanged"
    [ "${#maybe[@]}" -gt 0 ] || return 0
    # It stops at a file that cannot be read, which has changed then.
    printf './%s\n' "${maybe[@]}" | git hash-object --no-filters --stdin-paths >"$TMPDIR/found" || true
    mapfile -t found <"$TMPDIR/found"
    for number in "${!maybe[@]}"; do
        if [ "${found[number]-}" = "${ids[number]}" ]; then
            printf '%s\0' "${maybe[number]}" >>"$TMPDIR/unchanged"
        else
            printf '%s\n' "${maybe[number]}"
        fi
    done
}
# Notes the state of those files in the index, by a git that converts nothing: then each other git sees by their times that they are unchanged.
# It would look again at a file as young as the index.
settle() {
    [ -s "$TMPDIR/unchanged" ] || return 0
    local raw=$TMPDIR/raw mark=$TMPDIR/mark file index objects common
    index=$(git rev-parse --path-format=absolute --git-path index)
    objects=$(git rev-parse --path-format=absolute --git-path objects)
    common=$(git rev-parse --path-format=absolute --git-common-dir)
    rm -rf "$raw"
    mkdir -p "$raw/refs" "$raw/info" "$raw/objects"
    cp -- "$common/config" "$raw/config"
    printf 'ref: refs/heads/none\n' >"$raw/HEAD"
    printf '* -text !eol !ident !filter !working-tree-encoding\n' >"$raw/info/attributes"
    touch -d '2 seconds ago' "$mark"
    while IFS= read -r -d '' file; do
        [ ! "./$file" -nt "$mark" ] || touch -h -r "$mark" -- "./$file"
    done <"$TMPDIR/unchanged"
    GIT_DIR=$raw GIT_WORK_TREE=$PWD GIT_INDEX_FILE=$index GIT_OBJECT_DIRECTORY=$objects \
        git -c core.splitIndex=false update-index -q --refresh || true
}
refuse_uncommitted() {
    uncommitted
    [ ! -s "$TMPDIR/changed" ] ||
        refuse "$T_WRITES has changes that are not committed: $(LC_ALL=C sort "$TMPDIR/changed" | first 11 | paste -sd, | sed 's/,/, /g')" "$1"
}
# Shows the subjects of a few commits that the team repository does not hold: of those named, and of what they rest on.
unsaved() {
    { printf '%s\n' "$@"; git --git-dir="$team" for-each-ref --format='^%(objectname)'; } | git log --no-decorate --format=%s --max-count=5 --stdin
}
